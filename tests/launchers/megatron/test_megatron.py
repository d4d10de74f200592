"""The megatron-core loop on real gloo ranks.

Every layout computes the training of one plain process on transformers' model.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from alone import train_alone
from marks import tier
from planning import Measurement, make_plan

import llmexp
from llmexp.training.plan.training_plan import TrainingPlan

pytestmark = pytest.mark.ranks

WORKER = "megatron_worker"
FEW_FILES = "[" + ",".join(sorted(str(path) for path in Path(llmexp.__file__).parent.glob("[lmp]*/__init__.py"))) + "]"
ULYSSES = "parallelism.cp_kind=ulysses"
LAYERS, SAMPLES = 2, 4
FUSED = "+engine.options.transformer.bias_activation_fusion=true +engine.options.transformer.bias_dropout_fusion=true"
CHUNKED = "kernels.chunked_loss=true"
CROSS_ENTROPY = " +engine.options.transformer.cross_entropy_loss_fusion=true"
SMALL = ("model.hidden_size=64", "model.intermediate_size=96", "model.head_dim=16", "model.vocab_size=288")
FLASH, UNFUSED = "aten::_scaled_dot_product_flash_attention_for_cpu", "aten::_softmax"
# Of losses near 6 and gradient norms near 5, over 4 steps (measured: 1e-6 and 6e-6; a wrong layout: 2e-4 and more).
FP32_TOLERANCE = 1e-5
BF16_TOLERANCE = 2e-2

# Layouts by ranks, each with its words; all of them train on the same 4 sequences a step.
LAYOUTS: dict[str, tuple[int, str]] = {
    "one rank": (1, "parallelism.dp=1"),
    "F": (1, "parallelism.dp=1 method=F"),
    "R": (1, "parallelism.dp=1 method=R"),
    "RS": (1, "parallelism.dp=1 method=RS"),
    "padded": (1, f"parallelism.dp=1 data.pack=false data.seq_len=128 data.files={FEW_FILES}"),
    "qwen3": (1, "parallelism.dp=1 model.architecture=qwen3"),
    "tied": (1, "parallelism.dp=1 model.tie_embeddings=true"),
    "bf16_mixed": (1, "parallelism.dp=1 precision=bf16_mixed"),
    "bf16_mixed, fp32 gradients": (1, "parallelism.dp=1 precision=bf16_mixed precision.gradients=fp32"),
    "bf16_pure": (1, "parallelism.dp=1 precision=bf16_pure"),
    "fused": (1, f"parallelism.dp=1 {FUSED}"),
    "fused, bf16_mixed": (1, f"parallelism.dp=1 precision=bf16_mixed {FUSED}{CROSS_ENTROPY}"),
    "dp 2": (2, "parallelism.dp=2"),
    "dp 2, Z1": (2, "parallelism.dp=2 method=Z1"),
    "tp 2, chunked, padded": (
        2,
        f"parallelism.dp=1 parallelism.tp=2 data.pack=false data.seq_len=128 data.files={FEW_FILES} {CHUNKED}",
    ),
    "tp 2, sequence, tied, chunked": (
        2,
        f"parallelism.dp=1 parallelism.tp=2 parallelism.sequence=true model.tie_embeddings=true {CHUNKED}",
    ),
    "tied, chunked": (1, f"parallelism.dp=1 model.tie_embeddings=true {CHUNKED}"),
    "dp 2, Z1, chunked, bf16_mixed": (2, f"parallelism.dp=2 method=Z1 precision=bf16_mixed {CHUNKED}"),
    "pp 2, 2 virtual stages, chunked": (
        2,
        f"parallelism.dp=1 parallelism.pp=2 parallelism.virtual_stages=2 model.num_layers=4 {CHUNKED}",
    ),
    "ring cp 2, padded, chunked": (
        2,
        f"parallelism.dp=1 parallelism.cp=2 data.pack=false data.seq_len=128 data.files={FEW_FILES} {CHUNKED}",
    ),
    "dp 2, Z1, bf16_mixed": (2, "parallelism.dp=2 method=Z1 precision=bf16_mixed"),
    "tp 2": (2, "parallelism.dp=1 parallelism.tp=2"),
    "tp 2, sequence": (2, "parallelism.dp=1 parallelism.tp=2 parallelism.sequence=true"),
    "tp 2, sequence, qwen3": (
        2,
        "parallelism.dp=1 parallelism.tp=2 parallelism.sequence=true model.architecture=qwen3",
    ),
    "pp 2": (2, "parallelism.dp=1 parallelism.pp=2"),
    "pp 2, R": (2, "parallelism.dp=1 parallelism.pp=2 method=R"),
    "pp 2, tied": (2, "parallelism.dp=1 parallelism.pp=2 model.tie_embeddings=true"),
    "pp 2, 2 virtual stages": (2, "parallelism.dp=1 parallelism.pp=2 parallelism.virtual_stages=2 model.num_layers=4"),
    "pp 2, embedding as a layer": (
        2,
        "parallelism.dp=1 parallelism.pp=2 parallelism.ends_as_layers=embedding model.num_layers=3",
    ),
    "pp 2, head as a layer, tied": (
        2,
        "parallelism.dp=1 parallelism.pp=2 parallelism.ends_as_layers=head model.num_layers=3 "
        "model.tie_embeddings=true",
    ),
    "pp 2, ends alone on a stage": (
        2,
        "parallelism.dp=1 parallelism.pp=2 parallelism.virtual_stages=2 parallelism.ends_as_layers=both",
    ),
    "tp 2, pp 2, sequence, F+R": (
        4,
        "parallelism.dp=1 parallelism.tp=2 parallelism.pp=2 parallelism.sequence=true method=F+R",
    ),
    "dp 2, pp 2, Z1": (4, "parallelism.dp=2 parallelism.pp=2 method=Z1"),
    "experts": (1, "parallelism.dp=1 model=tiny-moe"),
    "experts, R": (1, "parallelism.dp=1 model=tiny-moe method=R"),
    "experts, dp 2": (2, "parallelism.dp=2 model=tiny-moe"),
    "ep 2": (2, "parallelism.dp=2 parallelism.ep=2 model=tiny-moe"),
    "ep 2, allgather": (
        2,
        "parallelism.dp=2 parallelism.ep=2 model=tiny-moe "
        "+engine.options.transformer.moe_token_dispatcher_type=allgather",
    ),
    "ep 2, Z1": (2, "parallelism.dp=2 parallelism.ep=2 model=tiny-moe method=Z1"),
    "ep 2, bf16_mixed": (2, "parallelism.dp=2 parallelism.ep=2 model=tiny-moe precision=bf16_mixed"),
    "ep 2, pp 2": (4, "parallelism.dp=2 parallelism.ep=2 parallelism.pp=2 model=tiny-moe"),
    "ep 2, tp 2, sequence, F+R": (
        4,
        "parallelism.dp=2 parallelism.ep=2 parallelism.tp=2 parallelism.sequence=true model=tiny-moe method=F+R",
    ),
    "ep 4, tp 2, whole experts": (
        4,
        "parallelism.dp=2 parallelism.ep=4 parallelism.tp=2 parallelism.etp=1 parallelism.sequence=true model=tiny-moe",
    ),
    "ep 2, tp 2, whole experts, Z1": (
        4,
        "parallelism.dp=2 parallelism.ep=2 parallelism.tp=2 parallelism.etp=1 parallelism.sequence=true model=tiny-moe "
        "method=Z1",
    ),
    "ep 2, dp 4": (4, "parallelism.dp=4 parallelism.ep=2 model=tiny-moe"),
    "dp 2, tp 2, sequence, F+R+Z1": (4, "parallelism.dp=2 parallelism.tp=2 parallelism.sequence=true method=F+R+Z1"),
    "ring cp 2": (2, "parallelism.dp=1 parallelism.cp=2"),
    "ring cp 2, F, padded": (
        2,
        f"parallelism.dp=1 parallelism.cp=2 method=F data.pack=false data.seq_len=128 data.files={FEW_FILES}",
    ),
    "ring cp 2, RS": (2, "parallelism.dp=1 parallelism.cp=2 method=RS"),
    "ring cp 2, R, qwen3": (2, "parallelism.dp=1 parallelism.cp=2 method=R model.architecture=qwen3"),
    "ring cp 2, F, bf16_mixed": (2, "parallelism.dp=1 parallelism.cp=2 method=F precision=bf16_mixed"),
    "ring cp 2, bf16_mixed": (2, "parallelism.dp=1 parallelism.cp=2 precision=bf16_mixed"),
    "ulysses cp 2, F+R": (2, f"parallelism.dp=1 {ULYSSES} parallelism.cp=2 method=F+R"),
    "ring cp 2, ep 2": (2, "parallelism.dp=1 parallelism.cp=2 parallelism.ep=2 model=tiny-moe"),
    "ring cp 4, F": (4, "parallelism.dp=1 parallelism.cp=4 method=F"),
    "ulysses cp 4": (4, f"parallelism.dp=1 {ULYSSES} parallelism.cp=4"),
    "ring cp 2, dp 2, F+R+Z1": (4, "parallelism.dp=2 parallelism.cp=2 method=F+R+Z1"),
    "ring cp 2, tp 2, sequence, F": (
        4,
        "parallelism.dp=1 parallelism.cp=2 parallelism.tp=2 parallelism.sequence=true method=F",
    ),
    "ulysses cp 2, tp 2, sequence, F": (
        4,
        f"parallelism.dp=1 {ULYSSES} parallelism.cp=2 parallelism.tp=2 parallelism.sequence=true method=F",
    ),
    "ring cp 2, pp 2, R": (4, "parallelism.dp=1 parallelism.cp=2 parallelism.pp=2 method=R"),
}
FEW_TOKENS = (2, "parallelism.dp=2 parallelism.ep=2 model=tiny-moe model.num_experts=32 data.seq_len=8")
WRONG = (2, "parallelism.dp=2 +engine.options.transformer.calculate_per_token_loss=true")
# Each kind of parallelism alone, with what it meets in others; the rest is run by make test-sweeps.
SHORT = {
    *(
        "one rank",
        "R",
        "RS",
        "padded",
        "qwen3",
        "bf16_mixed",
        "bf16_mixed, fp32 gradients",
        "fused, bf16_mixed",
        "dp 2",
        "dp 2, Z1",
        "tp 2, sequence, qwen3",
    ),
    *(
        "pp 2",
        "pp 2, tied",
        "pp 2, 2 virtual stages",
        "tied, chunked",
        "tp 2, sequence, tied, chunked",
        "ring cp 2, padded, chunked",
        "pp 2, embedding as a layer",
        "pp 2, ends alone on a stage",
        "dp 2, tp 2, sequence, F+R+Z1",
        "ring cp 2",
        "ring cp 2, F, padded",
        "ring cp 2, pp 2, R",
    ),
    *(
        "experts, dp 2",
        "ep 2",
        "ep 2, allgather",
        "ep 2, bf16_mixed",
        "ep 2, tp 2, sequence, F+R",
        "ep 4, tp 2, whole experts",
        "ring cp 2, ep 2",
        "ulysses cp 2, tp 2, sequence, F",
    ),
}
# Each of these meets again what the others of SHORT do alone.
REST = {
    "dp 2, tp 2, sequence, F+R+Z1",
    "ring cp 2, pp 2, R",
    "ep 2, tp 2, sequence, F+R",
    "ring cp 2, ep 2",
    "ep 2, bf16_mixed",
    "ulysses cp 2, tp 2, sequence, F",
    "fused, bf16_mixed",
}
QUICK = SHORT - REST
EVERY = [pytest.param(name, marks=tier(name, QUICK, SHORT)) for name in LAYOUTS]
FP32 = [each for each, name in zip(EVERY, LAYOUTS, strict=True) if "bf16" not in name]
BF16 = [each for each, name in zip(EVERY, LAYOUTS, strict=True) if "bf16" in name]


@cache
def plan(words: str) -> TrainingPlan:
    dp = int(words.partition("parallelism.dp=")[2][0])
    common = ["engine=megatron", "hardware=cpu", f"batch.accumulation={SAMPLES // dp}", *SMALL]
    defaults = [
        word
        for word in ("data.seq_len=48", "precision=fp32", f"model.num_layers={LAYERS}")
        if word.split("=")[0] + "=" not in words
    ]
    return make_plan(*common, *defaults, *words.split())


def one_process(words: str) -> tuple[list[float], list[float]]:
    """Losses and gradient norms of a plain loop on transformers' model, with the same weights and sequences."""
    return _one_process(
        " ".join(["parallelism.dp=1", *(word for word in words.split() if word.startswith(("model", "data")))])
    )


@cache
def _one_process(words: str) -> tuple[list[float], list[float]]:
    alone = train_alone(plan(words))
    return alone.losses, alone.gradient_norms


@pytest.fixture(scope="module")
def observed(observe: Callable[..., Measurement], asked: set[str]) -> Measurement:
    wanted = {name: layout for name, layout in LAYOUTS.items() if name in asked | QUICK} | {
        "few tokens": FEW_TOKENS,
        "summed": WRONG,
    }
    found: Measurement = {}
    for ranks in (1, 2, 4):
        plans = {name: plan(words) for name, (needs, words) in wanted.items() if needs == ranks}
        found |= observe(plans, ranks, WORKER) if plans else {}
    return found


def mean_losses(ranks: list[dict[str, Any]]) -> list[float]:
    """Over the replicas: each rank reports its replica's."""
    return [sum(step) / len(ranks) for step in zip(*(rank["losses"] for rank in ranks), strict=True)]


@pytest.mark.parametrize("name", FP32)
def test_a_layout_computes_what_one_process_computes(observed: Measurement, name: str) -> None:
    losses, norms = one_process(LAYOUTS[name][1])
    assert losses[-1] < losses[0] - 0.05
    assert mean_losses(observed[name]) == pytest.approx(losses, abs=FP32_TOLERANCE)
    for rank in observed[name]:
        assert rank["gradient_norms"] == pytest.approx(norms, abs=FP32_TOLERANCE)
        assert rank["gradient_norm"] == rank["gradient_norms"][0]
    assert max(rank["largest_update"] for rank in observed[name]) == pytest.approx(
        plan(LAYOUTS[name][1]).config.optimizer.lr, rel=0.02
    )


@pytest.mark.parametrize("name", BF16)
def test_bf16_follows_the_curve_of_fp32(observed: Measurement, name: str) -> None:
    assert mean_losses(observed[name]) == pytest.approx(mean_losses(observed["one rank"]), abs=BF16_TOLERANCE)


@pytest.mark.parametrize("name", EVERY)
def test_every_rank_of_a_replica_has_its_sequences_and_reports_its_loss(observed: Measurement, name: str) -> None:
    dims = plan(LAYOUTS[name][1]).dims
    ranks = observed[name]
    assert [rank["replica"] for rank in ranks] == [dims.replica_of(index) for index in range(dims.world_size)]
    assert len({(rank["replica"], *rank["losses"]) for rank in ranks}) == dims.dp


@pytest.mark.parametrize("name", EVERY)
def test_f_runs_the_flash_kernel_and_nothing_else_does(observed: Measurement, name: str) -> None:
    flash = "F" in plan(LAYOUTS[name][1]).method.split("+")
    for rank in observed[name]:
        assert rank["attention_kernel"] == (FLASH if flash else UNFUSED)
        # A router has a softmax of its own.
        assert "moe" in LAYOUTS[name][1] or (UNFUSED in rank["operators"]) != flash


@pytest.mark.parametrize("name", EVERY)
def test_r_runs_every_layer_again_in_backward(observed: Measurement, name: str) -> None:
    chosen = plan(LAYOUTS[name][1])
    passes = chosen.batch.accumulation * (2 if "R" in chosen.method.split("+") else 1)
    first, _, last = chosen.dims.rank_part.stage_layers(chosen.config.model.num_layers)
    assert {rank["layer_calls"] for rank in observed[name]} == {passes * first, passes * last}


def test_every_layout_updates_by_one_fused_kernel(observed: Measurement) -> None:
    """Else AdamW makes temporary copies of all parameters, which the plan's bytes do not have."""
    for name, ranks in observed.items():
        operators = [rank["operators"] for rank in ranks]
        assert all("aten::_fused_adamw_" in each for each in operators), name


def test_rs_runs_the_attention_of_every_layer_again_in_backward_and_nothing_else_of_it(observed: Measurement) -> None:
    calls = {name: observed[name][0]["operators"][UNFUSED] for name in ("one rank", "RS", "R")}
    assert calls == {"one rank": SAMPLES * LAYERS, "RS": 2 * SAMPLES * LAYERS, "R": 2 * SAMPLES * LAYERS}


@pytest.mark.parametrize("name", EVERY)
def test_the_fullest_rank_holds_what_is_predicted(observed: Measurement, name: str) -> None:
    predicted = plan(LAYOUTS[name][1]).memory
    assert predicted is not None
    for kind in ("parameters", "gradients", "optimizer"):
        held = max(rank["state"][kind] for rank in observed[name])
        # Buffers that are shared out over replicas are padded.
        assert held == pytest.approx(getattr(predicted, kind).device, rel=0.01), kind


def test_experts_that_no_token_comes_to_change_nothing(observed: Measurement) -> None:
    losses, norms = one_process(FEW_TOKENS[1])
    assert mean_losses(observed["few tokens"]) == pytest.approx(losses, abs=FP32_TOLERANCE)
    assert observed["few tokens"][0]["gradient_norms"] == pytest.approx(norms, abs=FP32_TOLERANCE)


def test_ranks_that_share_out_experts_hold_half_of_them_each(observed: Measurement) -> None:
    config = plan(LAYOUTS["ep 2"][1]).config.model
    half = LAYERS * (config.num_experts // 2) * 3 * config.hidden_size * config.intermediate_size
    for kind, bytes_per_parameter in (("parameters", 4), ("gradients", 4), ("optimizer", 8)):
        whole = observed["experts, dp 2"][0]["state"][kind]
        assert [whole - rank["state"][kind] for rank in observed["ep 2"]] == [half * bytes_per_parameter] * 2, kind


@pytest.mark.parametrize("name", EVERY)
def test_a_rank_computes_with_its_share_of_a_sequence(observed: Measurement, name: str) -> None:
    chosen = plan(LAYOUTS[name][1])
    assert {tuple(rank["positions"]) for rank in observed[name]} == {(chosen.config.data.seq_len // chosen.dims.cp,)}


def test_what_ran_is_said(observed: Measurement) -> None:
    ran = {name: ranks[0]["what_ran"] for name, ranks in observed.items()}
    assert {each["loop"] for each in ran.values()} == {"megatron-core loop"}
    assert ran["pp 2"]["schedule"] == "forward_backward_pipelining_without_interleaving"
    assert ran["pp 2, 2 virtual stages"]["schedule"] == "forward_backward_pipelining_with_interleaving"
    assert ran["dp 2, Z1"]["engine_optimizer_class"].endswith("DistributedOptimizer")
    assert ran["dp 2"]["engine_optimizer_class"].endswith("FP32Optimizer")
    assert ran["ep 2"]["token_dispatcher"].endswith("MoEAlltoAllTokenDispatcher")
    assert ran["ep 2, allgather"]["token_dispatcher"].endswith("MoEAllGatherTokenDispatcher")
    assert ran["ep 2"]["experts_implementation"].endswith("SequentialMLP")
    assert "experts_implementation" not in ran["one rank"]
    assert ran["one rank"]["optimizer_class"] == "torch.optim.adamw.AdamW"
    assert ran["bf16_mixed"]["reduced_in"] == "torch.bfloat16"
    assert ran["bf16_mixed, fp32 gradients"]["reduced_in"] == "torch.float32"


@pytest.mark.parametrize("name", [each for each in EVERY if "fused" in each.values[0]])
def test_fusions_run_compiled_and_are_named(observed: Measurement, name: str) -> None:
    (rank,) = observed[name]
    compiled = [operator for operator in rank["operators"] if "Torch-Compiled Region" in operator]
    assert compiled
    assert rank["what_ran"]["fusions"].startswith("bias_activation_fusion, bias_dropout_fusion")
    assert ("cross_entropy" in rank["what_ran"]["fusions"]) == ("bf16" in name)


def test_without_fusions_nothing_is_compiled(observed: Measurement) -> None:
    assert observed["one rank"][0]["what_ran"]["fusions"] == "none"
    assert not any("Torch-Compiled Region" in operator for operator in observed["one rank"][0]["operators"])


def test_phases_are_those_of_the_schedule(observed: Measurement) -> None:
    assert observed["one rank"][0]["phases"] == ["forward", "backward"] * SAMPLES + ["optimizer"]
    assert observed["pp 2"][0]["phases"] == ["forward_backward", "optimizer"]


def test_a_layout_that_computes_something_else_does_not_pass(observed: Measurement) -> None:
    """Gradients are summed over the replicas instead of averaged.

    Adam hides it from the loss, the gradient norm does not.
    """
    _, norms = one_process(WRONG[1])
    for rank in observed["summed"]:
        assert rank["gradient_norms"] == pytest.approx([2 * norm for norm in norms], rel=1e-2)
        assert rank["gradient_norms"] != pytest.approx(norms, abs=FP32_TOLERANCE)
        assert rank["gradient_norm"] == rank["gradient_norms"][0]


@pytest.mark.parametrize("name", [each for each in EVERY if CHUNKED in LAYOUTS[each.values[0]][1]])
def test_every_rank_says_in_how_many_chunks_the_loss_was_computed(observed: Measurement, name: str) -> None:
    assert [rank["what_ran"].get("loss_chunks") for rank in observed[name]] == [1] * len(observed[name])
