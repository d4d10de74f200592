"""Experts that gloo ranks share by engine=torch, together with other degrees: the training of one plain process.

Shared sequences, cut matrices and stages; and the bytes planned.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cut_training import LAYERS, SEQ_LEN, Layouts, compare_saved, plan
from planning import Measurement, make_plan
from small_families import DEEPSEEK, QWEN

from llmexp.training.plan.fit import activations_of

pytestmark = pytest.mark.ranks


def schedule(name: str) -> str:
    return f"parallelism.schedule={name} parallelism.virtual_stages=2 model.num_layers=4"


MOE = "model=tiny-moe"
RING, ULYSSES = (f"parallelism.ep=2 parallelism.cp=2 parallelism.cp_kind={kind}" for kind in ("ring", "ulysses"))
TP = "parallelism.ep=2 parallelism.tp=2 parallelism.etp=1 parallelism.sequence=true"
PP = "parallelism.ep=2 parallelism.pp=2 parallelism.dp=2"
# Two ranks share the same experts of a stage.
PP_4 = f"{PP.replace('dp=2', 'dp=4')} parallelism.schedule=gpipe"
# Ranks get no token in most passes.
FEW = "model.num_experts=32 model.experts_per_token=1 data.seq_len=8"
# Measured: 1.3e-7 of losses, 3e-7 of gradient norms.
ROWS = {
    "cp": f"{RING} {MOE}",
    "cp, ulysses, R": f"{ULYSSES} {MOE} method=R",
    "cp, F+Z2": f"{RING} {MOE} method=F+Z2",
    "cp, ulysses, F+R+Z3, padded": f"{ULYSSES} {MOE} method=F+R+Z3 data.pack=false",
    "cp, Z3, bf16_mixed": f"{RING} {MOE} precision=bf16_mixed method=Z3",
    "dp cp": f"{RING} {MOE} parallelism.dp=2",
    "dp cp, Z3": f"{RING} {MOE} parallelism.dp=2 method=Z3",
    "cp, qwen3_moe": f"{RING} {QWEN}",
    "cp, ulysses, qwen3_moe, R+Z3": f"{ULYSSES} {QWEN} method=R+Z3",
    "cp, qwen3_moe, F": f"{RING} {QWEN} method=F",
    "cp, deepseek_v3": f"{RING} {DEEPSEEK}",
    "cp, ulysses, deepseek_v3, R+Z3": f"{ULYSSES} {DEEPSEEK} method=R+Z3",
    "cp, ulysses, deepseek_v3, RS": f"{ULYSSES} {DEEPSEEK} method=RS",
    "dp cp, ep 4, Z2": f"parallelism.ep=4 parallelism.dp=2 parallelism.cp=2 {MOE} method=Z2",
    "tp": f"{TP} {MOE}",
    "tp, few tokens": f"{TP} {MOE} {FEW}",
    "tp, few tokens, Z3": f"{TP} {MOE} {FEW} method=Z3",
    "tp, F+R, padded": f"{TP} {MOE} method=F+R data.pack=false",
    "tp, Z2": f"{TP} {MOE} method=Z2",
    "dp tp": f"{TP} {MOE} parallelism.dp=2",
    "dp tp, R+Z3": f"{TP} {MOE} parallelism.dp=2 method=R+Z3",
    "dp tp, ep 4, F+Z3": f"{TP.replace('ep=2', 'ep=4')} {MOE} parallelism.dp=2 method=F+Z3",
    "dp tp, ep 4": f"{TP.replace('ep=2', 'ep=4')} {MOE} parallelism.dp=2",
    "tp, qwen3_moe": f"{TP} {QWEN}",
    "tp, qwen3_moe, F+R+Z3": f"{TP} {QWEN} method=F+R+Z3",
    "tp, chunked": f"{TP} {MOE} kernels.chunked_loss=true",
    "tp, Z2, tied": f"{TP} {MOE} method=Z2 model.tie_embeddings=true",
    "tp, bf16_mixed": f"{TP} {MOE} precision=bf16_mixed",
    "tp, Z3, bf16_mixed": f"{TP} {MOE} precision=bf16_mixed method=Z3",
    "tp cp, Z3": f"{TP} {MOE} parallelism.cp=2 method=Z3",
    "tp cp": f"{TP} {MOE} parallelism.cp=2",
    "dp pp": f"{PP} {MOE}",
    "dp pp, few tokens": f"{PP} {MOE} {FEW}",
    "dp pp, few tokens, zero_bubble": f"{PP} {MOE} {schedule('zero_bubble')} {FEW.replace('=8', '=16')}",
    "dp pp, gpipe, F+R, padded": f"{PP} {MOE} parallelism.schedule=gpipe method=F+R data.pack=false",
    "dp pp, RS": f"{PP} {MOE} method=RS",
    "dp pp, tied, chunked": f"{PP} {MOE} model.tie_embeddings=true kernels.chunked_loss=true",
    "dp pp, qwen3_moe": f"{PP} {QWEN}",
    "dp pp, bf16_mixed": f"{PP} {MOE} precision=bf16_mixed",
    "dp pp, interleaved": f"{PP} {MOE} {schedule('interleaved')}",
    "dp pp, looped_bfs": f"{PP} {MOE} {schedule('looped_bfs')}",
    "dp pp, zero_bubble": f"{PP} {MOE} {schedule('zero_bubble')}",
    "dp pp, zbv": f"{PP} {MOE} {schedule('zbv')}",
    "cp pp, dualpipev": f"{RING} {MOE} parallelism.pp=2 {schedule('dualpipev')}",
    "cp pp": f"{RING} {MOE} parallelism.pp=2",
    "cp pp, ulysses, R": f"{ULYSSES} {MOE} parallelism.pp=2 method=R",
    "tp pp": f"{TP} {MOE} parallelism.pp=2",
    "tp pp, chunked, tied": f"{TP} {MOE} parallelism.pp=2 model.tie_embeddings=true kernels.chunked_loss=true",
    "dp tp pp": f"{TP} {MOE} parallelism.pp=2 parallelism.dp=2 method=F",
    "dp tp cp pp": f"{TP} {MOE} parallelism.pp=2 parallelism.dp=2 parallelism.cp=2 method=F+R",
    "dp pp, Z3": f"{PP} {MOE} method=Z3",
    "dp pp, Z2": f"{PP} {MOE} method=Z2",
    "dp pp, interleaved, Z3": f"{PP} {MOE} {schedule('interleaved')} method=Z3",
    "dp pp, interleaved, R+Z2, tied": f"{PP} {MOE} {schedule('interleaved')} method=R+Z2 model.tie_embeddings=true",
    "dp pp, gpipe, F+R+Z3, padded": f"{PP} {MOE} parallelism.schedule=gpipe method=F+R+Z3 data.pack=false",
    "dp pp, few tokens, Z3": f"{PP} {MOE} {FEW} method=Z3",
    "dp pp, qwen3_moe, Z3": f"{PP} {QWEN} method=Z3",
    "dp pp, Z3, bf16_mixed": f"{PP} {MOE} precision=bf16_mixed method=Z3",
    "dp 4 pp, gpipe, Z3": f"{PP_4} {MOE} method=Z3",
    "dp 4 pp, gpipe, qwen3_moe, Z2": f"{PP_4} {QWEN} method=Z2",
    "cp pp, Z3": f"{RING} {MOE} parallelism.pp=2 method=Z3",
    "cp pp, ulysses, qwen3_moe, F+Z2": f"{ULYSSES} {QWEN} parallelism.pp=2 method=F+Z2",
    "dp cp pp, interleaved, Z3": f"{RING} {MOE} parallelism.pp=2 parallelism.dp=2 {schedule('interleaved')} method=Z3",
    "dp cp pp, Z2": f"{RING} {MOE} parallelism.pp=2 parallelism.dp=2 method=Z2",
    "tp pp, Z3": f"{TP} {MOE} parallelism.pp=2 method=Z3",
    "tp pp, Z2, chunked": f"{TP} {MOE} parallelism.pp=2 method=Z2 kernels.chunked_loss=true",
    "tp pp, qwen3_moe, F+R+Z3": f"{TP} {QWEN} parallelism.pp=2 method=F+R+Z3",
    "dp tp pp, ep 4, Z2": f"{TP.replace('ep=2', 'ep=4')} {MOE} parallelism.pp=2 parallelism.dp=2 method=Z2",
    "dp tp pp, interleaved, Z3": f"{TP} {MOE} parallelism.pp=2 parallelism.dp=2 {schedule('interleaved')} method=Z3",
}
QUICK = {"cp, ulysses, F+R+Z3, padded", "tp", "dp tp, R+Z3", "cp pp, ulysses, R", "dp pp, interleaved, Z3"}
SWEEP = {
    *("cp, ulysses, R", "cp, Z3, bf16_mixed", "dp cp", "cp, qwen3_moe, F", "cp, ulysses, deepseek_v3, RS"),
    *("tp, few tokens", "dp tp", "dp tp, ep 4", "tp, qwen3_moe", "tp, Z3, bf16_mixed", "tp cp, Z3"),
    *("dp pp, RS", "dp pp, looped_bfs", "dp pp, zero_bubble", "cp pp", "tp pp", "dp pp, gpipe, F+R+Z3, padded"),
    *("dp 4 pp, gpipe, Z3", "cp pp, ulysses, qwen3_moe, F+Z2", "tp pp, Z3", "tp pp, Z2, chunked", "dp tp pp, ep 4, Z2"),
    *("dp pp, few tokens, zero_bubble", "dp pp, gpipe, F+R, padded", "dp pp, zbv", "cp pp, dualpipev", "dp tp cp pp"),
    *("dp cp pp, interleaved, Z3", "dp tp pp, interleaved, Z3", "dp 4 pp, gpipe, qwen3_moe, Z2", "tp cp"),
    *("tp pp, qwen3_moe, F+R+Z3", "dp pp, qwen3_moe, Z3", "tp, Z2, tied", "tp, bf16_mixed", "dp pp, bf16_mixed"),
}
LAYOUTS = Layouts(ROWS, QUICK, {*ROWS} - SWEEP)


@pytest.fixture(scope="module")
def observed(observe: Callable[..., Measurement], asked: set[str]) -> Measurement:
    return LAYOUTS.train(observe, asked)


@pytest.mark.parametrize("name", LAYOUTS.fp32)
def test_ranks_compute_what_one_process_computes(observed: Measurement, name: str) -> None:
    LAYOUTS.compare(observed, name)


@pytest.mark.parametrize("name", LAYOUTS.bf16)
def test_bf16_follows_the_curve_of_fp32(observed: Measurement, name: str) -> None:
    LAYOUTS.compare_bf16(observed, name)


@pytest.mark.parametrize("name", LAYOUTS.every)
def test_every_rank_holds_what_is_planned(observed: Measurement, name: str) -> None:
    LAYOUTS.compare_state(observed, name)


@pytest.mark.parametrize("name", [each for each in LAYOUTS.every if each.values[0] in ("dp pp, Z3", "dp pp, Z2")])
def test_a_rank_sends_tokens_to_the_other_one_of_its_stage(observed: Measurement, name: str) -> None:
    ran = [rank["what_ran"] for rank in observed[name]]
    sent, received = ([each[f"expert_tokens_{way}"] for each in ran] for way in ("sent", "received"))
    assert sent == [received[rank] for rank in (1, 0, 3, 2)]
    assert all(0 < count < 2 * SEQ_LEN * LAYERS // 2 for count in sent)


SENT = {"cp": ROWS["cp"], "tp": ROWS["tp"], "tp, Z3": f"{TP} {MOE} method=Z3"}


def test_a_rank_sends_the_tokens_of_its_part_to_experts_of_others(observe: Callable[..., Measurement]) -> None:
    for name, words in SENT.items():
        made = plan(f"{words} parallelism.dp=1")
        ranks = observe({name: made}, 2, "methods_worker")[name]
        sent, received = ([rank["what_ran"][f"expert_tokens_{way}"] for rank in ranks] for way in ("sent", "received"))
        assert sent == received[::-1]
        assert all(0 < count < 2 * SEQ_LEN // 2 * LAYERS for count in sent)
        assert {tuple(rank["positions"]) for rank in ranks} == {(SEQ_LEN // 2,)}


LIVING = {
    "cp": f"{RING} {MOE}",
    "cp, ulysses, F": f"{ULYSSES} {MOE} method=F",
    "tp": f"{TP} {MOE}",
    "tp, F": f"{TP} {MOE} method=F",
    "cp, qwen3_moe": f"{RING} {QWEN}",
    "cp, ulysses, qwen3_moe, F": f"{ULYSSES} {QWEN} method=F",
    "cp, ulysses, qwen3_moe": f"{ULYSSES} {QWEN}",
    "cp, qwen3_moe, R": f"{RING} {QWEN} method=R",
    "cp, deepseek_v3": f"{RING} {DEEPSEEK}",
    "cp, ulysses, deepseek_v3": f"{ULYSSES} {DEEPSEEK}",
}


@pytest.mark.slow
def test_what_lives_after_forward_is_what_is_planned(observe: Callable[..., Measurement]) -> None:
    """Both ranks together, as one gets more tokens than the other."""
    long = ("engine=torch", "hardware=cpu", "precision=fp32", "data=synthetic", "data.seq_len=512", "batch.micro=2")
    plans = {name: make_plan(*long, "parallelism.dp=1", *words.split()) for name, words in LIVING.items()}
    for name, ranks in observe(plans, 2, "living_worker").items():
        made = plans[name]
        computing, memory = activations_of(made, made.batch.micro), made.memory
        assert computing is not None
        assert memory is not None
        living = sum(rank["living"]["forward"] for rank in ranks) / len(ranks)
        state = memory.parameters.device + memory.optimizer.device + memory.standing_gradients
        assert living == pytest.approx(state + computing.kept, rel=0.05), name


@pytest.mark.slow
@pytest.mark.parametrize("words", [f"{TP} {MOE} parallelism.dp=1", f"{RING} {MOE} parallelism.dp=1 method=Z3"])
def test_transformers_loads_the_whole_model_that_was_saved(observe: Callable[..., Measurement], words: str) -> None:
    compare_saved(observe, words)
