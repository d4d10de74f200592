"""Experts shared out over real gloo ranks by engine=torch: the training of one plain process, and the bytes planned.

Whole experts, alone and with replicas that hold all of a rank's experts or share them out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import checkpoints
import pytest
import small_families
import torch
from alone import Alone, train_alone
from marks import slow, tier
from planning import Measurement, make_plan
from small_families import DEEPSEEK
from torch.distributed.device_mesh import init_device_mesh
from transformers import AutoModelForCausalLM, MixtralConfig, MixtralForCausalLM

from llmexp.errors import ConfigError
from llmexp.launchers.torch_native.shared_experts import experts_of, share_experts
from llmexp.launchers.training.optimizer_state import local
from llmexp.training.plan.fit import activations_of
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.traced_memory import trace_memory

pytestmark = pytest.mark.ranks

SAMPLES, STEPS = 4, 4
LAYERS = 2
SMALL = (
    *("model=tiny-moe", "model.hidden_size=64", "model.intermediate_size=96", "model.head_dim=16"),
    *("model.vocab_size=288", f"model.num_layers={LAYERS}"),
)


QWEN = f"{small_families.QWEN} model.config.output_router_logits=true model.config.router_aux_loss_coef=0.1"
TP = "parallelism.tp=2 parallelism.etp=1 parallelism.sequence=true"
# Ranks get no token in most passes.
FEW = "model.num_experts=32 model.experts_per_token=1 data.seq_len=8"
# An expert a rank, which two ranks share by rows.
WIDE = "model.num_experts=2"
# Larger than any norm: it is measured, and nothing is clipped.
MEASURED = "optimizer.clip_norm=1000"
# Layouts by ranks, each with its words; all of them train on the same 4 sequences a step.
LAYOUTS: dict[str, tuple[int, str]] = {
    "Naive": (2, ""),
    "F": (2, "method=F"),
    "R": (2, "method=R"),
    "RS": (2, "method=RS"),
    "F+R, padded": (2, "method=F+R data.pack=false"),
    "Z2": (2, "method=Z2"),
    "F+R+Z3": (2, "method=F+R+Z3"),
    "chunked": (2, "kernels.chunked_loss=true"),
    "chunked, Z3": (2, "method=Z3 kernels.chunked_loss=true"),
    "few tokens": (2, FEW),
    "few tokens, Z3": (2, f"method=Z3 {FEW}"),
    "qwen3_moe": (2, QWEN),
    "qwen3_moe, R+Z3": (2, f"method=R+Z3 {QWEN}"),
    "deepseek_v3": (2, DEEPSEEK),
    "deepseek_v3, Z2": (2, f"method=Z2 {DEEPSEEK}"),
    "bf16_mixed": (2, "precision=bf16_mixed"),
    "bf16_mixed, Z3": (2, "precision=bf16_mixed method=Z3"),
    "dp 4": (4, "parallelism.dp=4"),
    "dp 4, F+Z2": (4, "parallelism.dp=4 method=F+Z2"),
    "dp 4, R+Z3": (4, "parallelism.dp=4 method=R+Z3"),
    "dp 4, Z3, by rows": (4, f"parallelism.dp=4 method=Z3 {WIDE}"),
    "ep 4": (4, "parallelism.dp=4 parallelism.ep=4"),
    "ep 4, Z3": (4, "parallelism.dp=4 parallelism.ep=4 method=Z3"),
}
QUICK = {"Naive", "F+R+Z3"}
SHORT = {*LAYOUTS} - {"F", "RS", "qwen3_moe, R+Z3", "deepseek_v3", "dp 4, F+Z2"}
EVERY = [pytest.param(name, marks=tier(name, QUICK, SHORT)) for name in LAYOUTS]
FP32 = [each for each, name in zip(EVERY, LAYOUTS, strict=True) if "bf16" not in name]
# Measured: 9e-8 of losses, 2.1e-7 of gradient norms, with transformers 5.23 and 5.0.
FP32_TOLERANCE, BF16_TOLERANCE = 1e-6, 5e-3


@cache
def plan(words: str) -> TrainingPlan:
    dp = next((dp for dp in (1, 4) if f"parallelism.dp={dp}" in words), 2)
    common = ["engine=torch", "hardware=cpu", "measure=smoke"]
    common += SMALL if not words.startswith("model=") and " model=" not in words else ()
    protocol = ["measure.warmup_steps=1", f"measure.steps={STEPS - 1}", f"batch.accumulation={SAMPLES // dp}"]
    defaults = ["precision=fp32"] * ("precision" not in words) + ["parallelism.dp=2"] * (dp == 2)
    defaults += ["data.seq_len=48"] * ("data.seq_len" not in words)
    defaults += ["parallelism.ep=2"] * ("parallelism.ep" not in words)
    made = make_plan(*common, *protocol, *defaults, *words.split(), MEASURED)
    assert made.skip is None, made.skip
    return made


def one_process(words: str) -> Alone:
    of_model = [word for word in words.split() if word.startswith(("model", "data"))]
    return _one_process(" ".join([*of_model, "parallelism.dp=1", "parallelism.ep=1"]))


@cache
def _one_process(words: str) -> Alone:
    return train_alone(plan(words))


@pytest.fixture(scope="module")
def observed(observe: Callable[..., Measurement], asked: set[str]) -> Measurement:
    found: Measurement = {}
    for ranks in (2, 4):
        wanted = {name: plan(words) for name, (needs, words) in LAYOUTS.items() if needs == ranks and name in asked}
        found |= observe(wanted, ranks, "updates_worker") if wanted else {}
    return found


def mean_losses(observed: Measurement, name: str) -> list[float]:
    ranks = observed[name]
    return [sum(step) / len(ranks) for step in zip(*(rank["loss"] for rank in ranks), strict=True)]


@pytest.mark.parametrize("name", FP32)
def test_ranks_compute_what_one_process_computes(observed: Measurement, name: str) -> None:
    alone = one_process(LAYOUTS[name][1])
    assert alone.losses[-1] < alone.losses[0] - 0.01
    assert mean_losses(observed, name) == pytest.approx(alone.losses, rel=FP32_TOLERANCE)
    for rank in observed[name]:
        assert rank["gradient_norm"] == pytest.approx(alone.gradient_norms, rel=FP32_TOLERANCE)
        assert rank["first"] == pytest.approx(alone.gradient_norms[0], rel=FP32_TOLERANCE)


@pytest.mark.parametrize("name", [each for each in EVERY if each not in FP32])
def test_bf16_follows_the_curve_of_fp32(observed: Measurement, name: str) -> None:
    expected = one_process("")
    assert mean_losses(observed, name) == pytest.approx(expected.losses, rel=BF16_TOLERANCE)
    assert observed[name][0]["gradient_norm"] == pytest.approx(expected.gradient_norms, rel=10 * BF16_TOLERANCE)


@pytest.mark.parametrize("name", EVERY)
def test_every_rank_holds_what_is_planned(observed: Measurement, name: str) -> None:
    """FSDP2 partitions a router by rows, of which there may be fewer than ranks, and fills up to equal parts."""
    memory, ranks = plan(LAYOUTS[name][1]).memory, observed[name]
    assert memory is not None
    for kind in ("parameters", "gradients", "optimizer"):
        planned, held = getattr(memory, kind).device, [rank["state"][kind] for rank in ranks]
        assert held == pytest.approx([planned] * len(ranks), rel=0.01 * ("by rows" in name)), kind
    assert {rank["state"].get("gathered", 0) for rank in ranks} == {memory.gathered}


@pytest.mark.parametrize(
    ("ranks", "words"),
    [(2, ""), slow(2, QWEN), slow(4, "parallelism.dp=4 method=Z3"), slow(2, f"method=Z2 {DEEPSEEK}")],
)
def test_transformers_loads_the_whole_model_that_was_saved(
    observe: Callable[..., Measurement], ranks: int, words: str
) -> None:
    made = plan(f"{words} task.save_model=true optimizer.lr=1e-2 batch.accumulation=1")
    first = observe({"saved": made}, ranks, "keeping_worker")["saved"][0]
    loss, _ = checkpoints.first_outputs(made, AutoModelForCausalLM.from_pretrained(Path(first["folder"]) / "model"))
    assert first["losses"][2] < first["losses"][0] - 0.1
    assert loss == pytest.approx(first["losses"][2], rel=FP32_TOLERANCE)


SENT = {"Naive": "", "R": "method=R", "Z3": "method=Z3", "qwen3_moe": QWEN}


def test_a_rank_computes_with_its_experts_alone_and_says_which_tokens_it_sent(
    observe: Callable[..., Measurement],
) -> None:
    plans = {name: plan(words) for name, words in SENT.items()}
    for name, ranks in observe(plans, 2, "methods_worker").items():
        tokens = 2 * 48 * LAYERS
        sent, received = ([rank["what_ran"][f"expert_tokens_{way}"] for rank in ranks] for way in ("sent", "received"))
        assert sent == received[::-1], name
        assert all(0 < count < tokens for count in sent), name
        assert {rank["what_ran"]["experts_implementation"] for rank in ranks} == {"grouped_mm"}
        assert {rank["layer_calls"] for rank in ranks} == {2 * LAYERS * (2 if name == "R" else 1)}


LIVING = {"Naive": "", "F": "method=F", "qwen3_moe": QWEN, "deepseek_v3": DEEPSEEK}


@pytest.mark.slow
def test_what_lives_after_forward_is_what_is_planned(observe: Callable[..., Measurement]) -> None:
    """Both ranks together, as one gets more tokens than the other."""
    long = "data=synthetic data.seq_len=512 batch.micro=2 batch.accumulation=1"
    plans = {name: plan(f"{words} {long}") for name, words in LIVING.items()}
    for name, ranks in observe(plans, 2, "living_worker").items():
        made = plans[name]
        computing, memory = activations_of(made, made.batch.micro), made.memory
        assert computing is not None
        assert memory is not None
        living = sum(rank["living"]["forward"] for rank in ranks) / len(ranks)
        state = memory.parameters.device + memory.optimizer.device + memory.standing_gradients
        assert living == pytest.approx(state + computing.kept, rel=0.05), name


@pytest.mark.parametrize("implementation", ["eager", "grouped_mm"])
def test_experts_that_get_no_token_have_gradients_of_zero(alone: None, implementation: str) -> None:
    """Other ranks wait for them, whatever transformers computes experts with."""
    config = MixtralConfig(num_hidden_layers=1, hidden_size=64, intermediate_size=8, num_local_experts=2, vocab_size=8)
    config._experts_implementation = implementation
    model = MixtralForCausalLM(config)
    share_experts(model, init_device_mesh("cpu", (1,)))
    (experts,) = experts_of(model)
    for parameter in experts.parameters():
        local(parameter).normal_()
    hidden, weights = (torch.zeros(0, width, requires_grad=True) for width in (64, 2))
    results = experts(hidden, torch.zeros(0, 2, dtype=torch.long), weights)
    results.sum().backward()
    assert results.shape == hidden.shape
    assert all(local(parameter.grad).count_nonzero() == 0 for parameter in experts.parameters())


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("method=F+R+Z3 precision=bf16_mixed", None),
        ("method=RS+Z2", None),
        ("task=finetune data=synthetic method=Full-FT", None),
        ("method=Z1", "it goes with F, R, RS, Z2, Z3, not with Z1"),
        ("method=C+Z3+O", "it goes with F, R, RS, Z2, Z3, not with C, O"),
        ("task=finetune data=synthetic method=L adapter.targets=[q_proj]", "it goes with F, R, RS, Z2, Z3, not with L"),
        ("parallelism.cp=2", None),
        ("parallelism.tp=2 parallelism.etp=1 parallelism.sequence=true method=F+R+Z3", None),
        ("parallelism.tp=2", "ranks hold whole experts, and parallelism.tp=2 would cut them: set parallelism.etp=1"),
        ("parallelism.tp=2 parallelism.etp=1", "a rank sends its part of each sequence: set parallelism.sequence=true"),
        (
            f"{TP} {DEEPSEEK}",
            "with parallelism.tp=2 it takes models of architecture mixtral, qwen3_moe, not model=deep",
        ),
        (f"{TP} {QWEN}", "output_router_logits of config.json balances experts over whole sequences: set it to false"),
        ("parallelism.pp=2 batch.accumulation=2 method=F+R", None),
        ("parallelism.pp=2 batch.accumulation=2 method=Z3", None),
        ("parallelism.pp=2 batch.accumulation=2 method=RS+Z2", None),
        ("parallelism.pp=2 batch.accumulation=2 method=C+Z3", "it goes with F, R, RS, Z2, Z3, not with C"),
        ("parallelism.pp=2 batch.accumulation=2 method=Z1", "it goes with F, R, RS, Z2, Z3, not with Z1"),
        (
            "parallelism.pp=2 batch.accumulation=2 method=Z3 parallelism.shard=1",
            "it has not been tried with parallelism.shard=1: leave that out",
        ),
        ("method=Z3 parallelism.shard=1", "it has not been tried with parallelism.shard=1: leave that out"),
        ("model=gpt-oss-20b", "it takes models of architecture mixtral, qwen3_moe, deepseek_v3, not model=gpt-oss-20b"),
        ("model.target=package.Model", "it takes models of architecture mixtral, qwen3_moe, deepseek_v3, not"),
        ("optimizer=muon", "it has been tried with optimizer=adamw and sgd, not with muon"),
        ("method=R memory.keep=products", "it has not been tried with memory.keep=products: leave that out"),
        ("precision.linears=fp8", "it has not been tried with precision.linears=fp8: leave that out"),
        ("parallelism.dp=6 parallelism.ep=3 model=qwen3-30b-a3b", "it does not divide the 128 experts of model=qwen3"),
    ],
)
def test_what_does_not_go_with_shared_experts_is_a_skip(words: str, reason: str | None) -> None:
    common = ("engine=torch", "hardware=cpu", "parallelism.dp=2", "parallelism.ep=2", "model=tiny-moe")
    skip = make_plan(*common, *words.split()).skip
    assert str(skip).startswith("engine=torch with parallelism.ep=" if reason else "None")
    assert reason is None or reason in str(skip)


def test_memory_is_not_traced_where_other_ranks_say_how_many_tokens_come() -> None:
    with pytest.raises(ConfigError, match="degrees other than dp wait for what other ranks send"):
        trace_memory(plan(""))
