"""Pipelines of engine=torch on real gloo ranks.

Every schedule computes the training of one plain process on the whole model.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
from alone import Alone, train_alone
from cut_training import mean_losses as cut_losses
from cut_training import plan as cut
from marks import slow, tier
from planning import Measurement, make_plan
from torch import nn
from torch.distributed.pipelining import schedules

import llmexp
from llmexp.launchers.torch_native.schedules import CLASSES, PASSES
from llmexp.training.plan.schedules import SCHEDULES, Pipeline
from llmexp.training.plan.training_plan import TrainingPlan

WORKER = "pipeline_worker"
FEW_FILES = "[" + ",".join(sorted(str(path) for path in Path(llmexp.__file__).parent.glob("[lmp]*/__init__.py"))) + "]"
LAYERS, SAMPLES = 4, 4
SMALL = ("model.hidden_size=64", "model.intermediate_size=96", "model.head_dim=16", "model.vocab_size=288")
FLASH, UNFUSED = "aten::_scaled_dot_product_flash_attention_for_cpu", "aten::_softmax"
# Of losses near 6, gradient norms near 4 and parameter norms of 1 to 8, over 4 steps (measured: 1e-6, 2e-6 and 1e-6).
FP32_TOLERANCE = 1e-5
BF16_TOLERANCE = 2e-2

TIED, CHUNKED = "model.tie_embeddings=true", "kernels.chunked_loss=true"
VIRTUAL = {"interleaved", "looped_bfs", "zero_bubble", "zbv", "dualpipev"}


def pp2(schedule: str, more: str = "") -> tuple[int, str]:
    stages = "parallelism.virtual_stages=2" if schedule in VIRTUAL else ""
    ranks = 4 if "dp=2" in more else 2
    return ranks, f"parallelism.pp=2 parallelism.schedule={schedule} {stages} {more}"


# Layouts by ranks, each with its words; all of them train on the same 4 sequences a step.
LAYOUTS: dict[str, tuple[int, str]] = {
    **{schedule: pp2(schedule) for schedule in SCHEDULES},
    "zero_bubble, one stage a rank": (2, "parallelism.pp=2 parallelism.schedule=zero_bubble"),
    "1f1b, F+R": pp2("1f1b", "method=F+R"),
    "1f1b, chunked": pp2("1f1b", CHUNKED),
    "1f1b, R, tied, chunked, dp 2, Z1": pp2("1f1b", f"method=R+Z1 parallelism.dp=2 {TIED} {CHUNKED}"),
    "interleaved, chunked, qwen3, bf16_mixed": pp2(
        "interleaved", f"model.architecture=qwen3 precision=bf16_mixed {CHUNKED}"
    ),
    "looped_bfs, R": pp2("looped_bfs", "method=R"),
    "1f1b, R in a layer of each": pp2("1f1b", "method=F+R memory.recompute_layers=2"),
    "interleaved, R in a layer of each": pp2("interleaved", "method=R model.num_layers=8 memory.recompute_layers=4"),
    "gpipe, RS": pp2("gpipe", "method=RS"),
    "zbv, F, padded": pp2("zbv", f"method=F data.pack=false data.seq_len=128 data.files={FEW_FILES}"),
    "zero_bubble, qwen3": pp2("zero_bubble", "model.architecture=qwen3"),
    "dualpipev, experts": pp2("dualpipev", "model=tiny-moe"),
    "interleaved, Q": pp2("interleaved", "method=Q"),
    "1f1b, C": pp2("1f1b", "method=C"),
    "dualpipev, bf16_mixed": pp2("dualpipev", "precision=bf16_mixed"),
    "zbv, bf16_pure": pp2("zbv", "precision=bf16_pure"),
    "1f1b, tied": pp2("1f1b", TIED),
    "interleaved, tied, bf16_mixed": pp2("interleaved", f"{TIED} precision=bf16_mixed"),
    "zero_bubble, dp 2": pp2("zero_bubble", "parallelism.dp=2"),
    "zbv, dp 2, Z1": pp2("zbv", "parallelism.dp=2 method=Z1"),
    "1f1b, dp 2, Z1, tied": pp2("1f1b", f"parallelism.dp=2 method=Z1 {TIED}"),
    "1f1b, dp 2, Z1, bf16_mixed": pp2("1f1b", "parallelism.dp=2 method=Z1 precision=bf16_mixed"),
    "interleaved, pp 4": (4, "parallelism.pp=4 parallelism.virtual_stages=2 model.num_layers=8"),
    "zbv, pp 4": (4, "parallelism.pp=4 parallelism.schedule=zbv parallelism.virtual_stages=2 model.num_layers=8"),
}
# Each schedule, with what it meets in methods and in replicas; the rest is run by make test-sweeps.
SHORT = {
    *(
        "gpipe",
        "looped_bfs",
        "zero_bubble",
        "zbv",
        "1f1b, F+R",
        "1f1b, chunked",
        "interleaved, R in a layer of each",
        "zbv, F, padded",
        "zero_bubble, qwen3",
        "dualpipev, experts",
    ),
    *("interleaved, Q", "dualpipev, bf16_mixed", "zbv, dp 2, Z1", "1f1b, dp 2, Z1, bf16_mixed", "interleaved, pp 4"),
}
# On two ranks.
QUICK = SHORT - {"zbv, dp 2, Z1", "1f1b, dp 2, Z1, bf16_mixed", "interleaved, pp 4"}
EVERY = [pytest.param(name, marks=tier(name, QUICK, SHORT)) for name in LAYOUTS]
FP32 = [each for each, name in zip(EVERY, LAYOUTS, strict=True) if "bf16" not in name]
BF16 = [each for each, name in zip(EVERY, LAYOUTS, strict=True) if "bf16" in name]
# A hook on a layer would be compiled with it, and compiling be profiled with the first step.
WATCHED = [each for each, name in zip(EVERY, LAYOUTS, strict=True) if ", C" not in name]


@cache
def plan(words: str) -> TrainingPlan:
    dp = 2 if "parallelism.dp=2" in words else 1
    common = ["engine=torch", "hardware=cpu", f"batch.accumulation={SAMPLES // dp}", *SMALL]
    defaults = [
        word
        for word in ("data.seq_len=48", "precision=fp32", "parallelism.dp=1")
        if word.split("=")[0] + "=" not in words
    ]
    made = make_plan(*common, *defaults, *words.split())
    assert made.skip is None
    return made


def one_process(words: str) -> Alone:
    """The same model, sequences and frozen parameters without any parallelism."""
    return _one_process(
        " ".join(word for word in words.split() if word.startswith(("model", "data")) or word == "method=Q")
    )


@cache
def _one_process(words: str) -> Alone:
    return train_alone(plan(words))


@pytest.fixture(scope="module")
def observed(observe: Callable[..., Measurement], asked: set[str]) -> Measurement:
    found: Measurement = {}
    for ranks in (2, 4):
        wanted = [name for name, (needs, _) in LAYOUTS.items() if needs == ranks and name in asked | QUICK]
        found |= observe({name: plan(LAYOUTS[name][1]) for name in wanted}, ranks, WORKER) if wanted else {}
    return found


def mean_losses(observed: Measurement, name: str) -> list[float]:
    """Over the replicas: each rank reports its replica's."""
    ranks = observed[name]
    return [sum(step) / len(ranks) for step in zip(*(rank["losses"] for rank in ranks), strict=True)]


@pytest.mark.ranks
@pytest.mark.parametrize("name", FP32)
def test_a_pipeline_computes_what_one_process_computes(observed: Measurement, name: str) -> None:
    alone = one_process(LAYOUTS[name][1])
    assert alone.losses[-1] < alone.losses[0] - 0.05
    assert mean_losses(observed, name) == pytest.approx(alone.losses, abs=FP32_TOLERANCE)
    updated: dict[str, float] = {}
    for rank in observed[name]:
        assert rank["gradient_norms"] == pytest.approx(alone.gradient_norms, abs=FP32_TOLERANCE)
        assert rank["gradient_norm"] == pytest.approx(alone.gradient_norms[0], rel=1e-3)
        updated |= rank["parameter_norms"]
    if "tied" in name:
        assert updated.pop("lm_head.weight") == updated["model.embed_tokens.weight"]
    assert updated == pytest.approx(alone.parameter_norms, abs=FP32_TOLERANCE)


@pytest.mark.ranks
@pytest.mark.parametrize("name", BF16)
def test_bf16_follows_the_curve_of_fp32(observed: Measurement, name: str) -> None:
    alone = one_process(LAYOUTS[name][1])
    assert mean_losses(observed, name) == pytest.approx(alone.losses, abs=BF16_TOLERANCE)
    for rank in observed[name]:
        assert rank["gradient_norm"] == pytest.approx(alone.gradient_norms[0], rel=BF16_TOLERANCE)


IN_FP8 = {
    "tensorwise": "parallelism.pp=2",
    "tensorwise, tied, dp 2, Z1": f"parallelism.pp=2 parallelism.dp=2 {TIED} method=Z1",
    "tensorwise, tp": "parallelism.pp=2 parallelism.tp=2 parallelism.sequence=true",
    "rowwise, interleaved, R": f"{pp2('interleaved')[1]} precision.scaling=rowwise method=R",
    "tensorwise, tp, dp 2, F+Z3": "parallelism.pp=2 parallelism.tp=2 parallelism.dp=2 method=F+Z3",
    "weights' gradients in fp32": f"{pp2('looped_bfs')[1]} precision.scaling=rowwise_with_gw_hp",
    "tensorwise, dp 2, R+Z3": "parallelism.pp=2 parallelism.dp=2 method=R+Z3",
    "rowwise, interleaved, dp 2, Z2": f"{pp2('interleaved')[1]} parallelism.dp=2 precision.scaling=rowwise method=Z2",
    "blocks, gpipe": f"{pp2('gpipe')[1]} precision=bf16_mixed precision.scaling=mxfp8 data.seq_len=64",
}


@pytest.mark.ranks
@pytest.mark.parametrize("name", [pytest.param(name, marks=tier(name, {"tensorwise"}, IN_FP8)) for name in IN_FP8])
def test_stages_multiply_in_fp8_as_the_whole_model_does(observe: Callable[..., Measurement], name: str) -> None:
    pytest.importorskip("torchao")
    words, stages = f"model.num_layers={LAYERS} {IN_FP8[name]} precision.linears=fp8", ("pp", "virtual", "sched", "dp")
    apart = (*(f"parallelism.{each}" for each in stages), "method=")
    made, whole = cut(words), cut(" ".join(word for word in words.split() if not word.startswith(apart)))
    alone = observe({"whole": whole}, whole.processes, "updates_worker")["whole"]
    ranks = observe({"cut": made}, made.processes, "updates_worker")["cut"]
    # Two ranks add up a tied weight's gradients in another order, after which some weights round otherwise in fp8.
    losses, compared = (1e-3, slice(1)) if "tied" in name else (1e-6, slice(None))
    assert cut_losses(ranks) == pytest.approx(cut_losses(alone), rel=losses)
    for rank in ranks:
        assert rank["gradient_norm"][compared] == pytest.approx(alone[0]["gradient_norm"][compared], rel=1e-6)
    assert made.memory is not None
    for kind in ("parameters", "gradients"):
        assert max(rank["state"][kind] for rank in ranks) == getattr(made.memory, kind).device, kind


@pytest.mark.ranks
@pytest.mark.parametrize("name", EVERY)
def test_every_rank_of_a_replica_reports_its_loss_and_counts_the_whole_model(observed: Measurement, name: str) -> None:
    made = plan(LAYOUTS[name][1])
    reported = {(made.dims.replica_of(index), *rank["losses"]) for index, rank in enumerate(observed[name])}
    assert len(reported) == made.dims.dp
    assert {rank["trainable_parameters"] for rank in observed[name]} == {made.trainable_parameters}


@pytest.mark.ranks
@pytest.mark.parametrize("name", WATCHED)
def test_each_rank_runs_its_layers_once_a_pass_and_r_runs_them_again(observed: Measurement, name: str) -> None:
    made = plan(LAYOUTS[name][1])
    layers = made.config.model.num_layers
    again = "R" in made.method.split("+") and made.config.memory.recomputed_share(layers)
    calls = made.batch.accumulation * layers * (1 + again) // made.dims.pp
    assert {rank["layer_calls"] for rank in observed[name]} == {calls}


@pytest.mark.ranks
@pytest.mark.parametrize("name", WATCHED)
def test_f_runs_the_flash_kernel_and_nothing_else_does(observed: Measurement, name: str) -> None:
    flash = "F" in plan(LAYOUTS[name][1]).method.split("+")
    for rank in observed[name]:
        assert rank["attention_kernel"] == (FLASH if flash else UNFUSED)
        assert (UNFUSED in rank["operators"]) != flash


@pytest.mark.ranks
@pytest.mark.parametrize("name", EVERY)
def test_the_fullest_rank_holds_what_is_predicted(observed: Measurement, name: str) -> None:
    predicted = plan(LAYOUTS[name][1]).memory
    assert predicted is not None
    for kind in ("parameters", "gradients", "optimizer"):
        held, expected = max(rank["state"][kind] for rank in observed[name]), getattr(predicted, kind).device
        # With Z1 a replica updates whole parameters; with Q the scales of a matrix are rounded up to whole blocks.
        assert held == (pytest.approx(expected, rel=0.03) if "Z1" in name or "Q" in name else expected), kind


@pytest.mark.ranks
@pytest.mark.parametrize("name", [pytest.param("gpipe, RS", marks=pytest.mark.sweep)])
def test_rs_runs_attention_again_in_backward(observed: Measurement, name: str) -> None:
    for once, again in zip(observed["gpipe"], observed[name], strict=True):
        assert again["operators"][UNFUSED] == 2 * once["operators"][UNFUSED] > 0


@pytest.mark.ranks
@pytest.mark.parametrize("name", [pytest.param("1f1b, C", marks=pytest.mark.sweep)])
def test_c_compiles_a_stages_layers_and_the_last_ones_loss(observed: Measurement, name: str) -> None:
    assert [rank["compiled_graphs"] for rank in observed[name]] == [1, 2]
    assert [rank["graph_breaks"] for rank in observed[name]] == [0, 0]


@pytest.mark.ranks
def test_what_ran_is_said(observed: Measurement) -> None:
    ran = {
        plan(LAYOUTS[name][1]).config.parallelism.schedule or "interleaved": ranks[0]["what_ran"]["schedule"]
        for name, ranks in observed.items()
    }
    assert ran == {
        schedule: f"torch.distributed.pipelining.schedules.{schedules.get_schedule_class(name).__name__}"
        for schedule, name in CLASSES.items()
    }
    assert observed["1f1b, F+R"][0]["what_ran"]["wrapper_class"] == "torch.distributed.pipelining.stage.PipelineStage"
    assert {tuple(ranks[0]["phases"]) for ranks in observed.values()} == {("forward_backward", "optimizer")}


@pytest.mark.ranks
@pytest.mark.parametrize("name", [slow("zbv, dp 2, Z1")])
def test_z1_shares_the_optimizer_out_over_replicas(observed: Measurement, name: str) -> None:
    assert observed[name][0]["what_ran"]["engine_optimizer_class"].endswith("ZeroRedundancyOptimizer")


def torch_takes(pipeline: Pipeline) -> bool:
    """Tell whether torch's own class lays it out."""
    kind = schedules.get_schedule_class(CLASSES[pipeline.schedule])
    stage = SimpleNamespace(
        num_stages=pipeline.stages, group_size=pipeline.pp, group_rank=0, stage_index=0, submod=nn.Identity()
    )
    stages = [stage] * pipeline.virtual_stages
    try:
        kind(stages if issubclass(kind, schedules.PipelineScheduleMulti) else stage, pipeline.passes)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("schedule", CLASSES)
def test_the_plan_refuses_the_passes_that_torch_refuses(schedule: str) -> None:
    shapes = [(pp, virtual) for pp in (2, 3, 4) for virtual in (1, 2, 3) if SCHEDULES[schedule].takes(virtual)]
    for pp, virtual in shapes:
        pipelines = [Pipeline(schedule, pp, virtual, passes) for passes in range(1, 10)]
        assert [PASSES[schedule].hold(each) for each in pipelines] == [torch_takes(each) for each in pipelines]


@pytest.mark.ranks
@pytest.mark.parametrize("name", [each for each in EVERY if CHUNKED in LAYOUTS[each.values[0]][1]])
def test_every_rank_says_in_how_many_chunks_the_loss_was_computed(observed: Measurement, name: str) -> None:
    assert [rank["what_ran"].get("loss_chunks") for rank in observed[name]] == [1] * len(observed[name])
