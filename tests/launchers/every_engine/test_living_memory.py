"""The memory that a plan is sure of, and that a rank counts, is held against all tensors that live in it.

There are two ranks and a few tokens, so little else lives there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from marks import tier
from planning import Measurement, make_plan

from llmexp.training.plan.training_plan import TrainingPlan

pytestmark = [pytest.mark.ranks, pytest.mark.long]

RANKS = 2
TWICE = "batch.accumulation=2"
BF16 = "precision=bf16_mixed"
# Of the tiny model's parameters those of embedding, head and last norm.
OUTSIDE = (2 * 512 * 128 + 128) / 494_208
# By engine and run: bytes a parameter that the plan is sure of, and when they are there.
SURE = {
    ("torch", "Naive", BF16): (2 + 6 + 12, "update"),
    ("torch", "Z1", BF16): (2 + 2 + 16 / RANKS, "update"),
    ("torch", "Z2", BF16): (12 / RANKS + 2, "forward"),
    ("torch", "Z2", BF16, TWICE): (16 / RANKS + 2, "forward"),
    ("torch", "Z2", "precision=fp32"): (12 / RANKS + 4, "forward"),
    ("torch", "Z2+O", "precision=fp32"): (12 / RANKS + 4, "forward"),
    ("torch", "Z3", BF16): (16 / RANKS, "update"),
    ("torch", "Z3", BF16, TWICE): (16 / RANKS + 2 * OUTSIDE, "forward"),
    ("deepspeed", "Naive", BF16): (2 + 6 + 12, "update"),
    ("deepspeed", "Naive", "precision=fp32"): (16, "update"),
    # A rank's share of the gradients, its flat copy and the copy in fp32, for a moment before the update.
    ("deepspeed", "Z1", BF16): (2 + (12 + 8) / RANKS, None),
    ("deepspeed", "Z2", BF16): (2 + (12 + 8) / RANKS, None),
    # A bucket of all gradients' size, which is no training state, is there throughout.
    ("deepspeed", "Z3", BF16): (20 / RANKS, None),
    ("deepspeed", "Z3+O", BF16): (20 / RANKS, None),
    ("megatron", "Naive", BF16): (2 + 6 + 12, None),
    ("megatron", "Z1", BF16): (2 + 2 + 16 / RANKS, None),
}
# The others are run by make test-sweeps.
SHORT = {
    *(("torch", "Naive", BF16), ("torch", "Z2", BF16), ("torch", "Z3", BF16, TWICE)),
    *(("deepspeed", "Naive", BF16), ("deepspeed", "Z2", BF16), ("deepspeed", "Z3+O", BF16)),
}
QUICK = {("torch", "Z3", BF16, TWICE), ("deepspeed", "Z2", BF16)}
RUNS = [pytest.param(run, marks=tier(run, QUICK, SHORT)) for run in SURE if run[0] != "megatron"]
# Frozen parameters and those that train, whole and in 4 bits; what is on the host is pinned.
ADAPTED = ("L+Z3+O", "QL+Z3+O", "L+Z3", "QL+Z3")
PIN = (
    "+engine.options.zero_optimization.offload_param.pin_memory=true",
    "+engine.options.zero_optimization.offload_param.device=cpu",
)


def plan(engine: str, method: str, *words: str) -> TrainingPlan:
    small = "hardware=cpu", "model.num_layers=2", f"parallelism.dp={RANKS}", "data.seq_len=4"
    return make_plan(*small, f"engine={engine}", f"method={method}", *words)


def adapted(method: str) -> TrainingPlan:
    return plan("deepspeed", method, BF16, "task=finetune", "data=text", *(PIN if "O" in method.split("+") else ()))


@pytest.fixture(scope="module")
def observed(observe: Callable[..., Measurement], request: pytest.FixtureRequest) -> Callable[[str], Measurement]:
    asked = {
        item.callspec.params["run"]
        for item in request.session.items
        if item.path == request.path and "observed" in item.fixturenames
    }

    def run(engine: str) -> Measurement:
        plans = {" ".join(run): plan(*run) for run in SURE if run[0] == engine and run in asked}
        return observe(plans, RANKS, "living_worker")

    return cache(run)


@pytest.fixture(scope="module")
def placed(observe: Callable[..., Measurement]) -> Measurement:
    return observe({method: adapted(method) for method in ADAPTED}, RANKS, "living_worker")


@pytest.mark.parametrize("run", SURE)
def test_the_plan_is_sure_of_what_lives_at_one_time(run: tuple[str, ...]) -> None:
    made = plan(*run)
    assert made.memory is not None
    assert made.memory.in_all == pytest.approx(SURE[run][0] * made.parameters, rel=2e-3)


@pytest.mark.parametrize("run", RUNS)
def test_no_run_holds_less_than_the_plan_is_sure_of(
    observed: Callable[[str], Measurement], run: tuple[str, ...]
) -> None:
    memory = plan(*run).memory
    assert memory is not None
    # Partitions of whole parameters, which ZeroRedundancyOptimizer makes, are not all of one size.
    assert max(rank["living"]["peak"] for rank in observed(run[0])[" ".join(run)]) >= 0.999 * memory.in_all


@pytest.mark.parametrize("run", [run for run in RUNS if SURE[run.values[0]][1]])
def test_what_is_sure_is_there_at_that_moment_with_little_else(
    observed: Callable[[str], Measurement], run: tuple[str, ...]
) -> None:
    memory, moment = plan(*run).memory, SURE[run][1]
    assert memory is not None
    assert max(rank["living"][moment] for rank in observed(run[0])[" ".join(run)]) == pytest.approx(
        1.03 * memory.in_all, rel=0.04
    )


@pytest.mark.parametrize("run", RUNS)
def test_a_rank_counts_what_the_plan_is_sure_of(observed: Callable[[str], Measurement], run: tuple[str, ...]) -> None:
    memory = plan(*run).memory
    assert memory is not None
    for rank in observed(run[0])[" ".join(run)]:
        state = rank["state"]
        passing = state.get("gradients_and_gathered", state["gradients"])
        for place in ("device", "host"):
            counted = state["parameters"][place] + passing[place] + state["optimizer"][place]
            counted += memory.brief_gradients * (place == "device")
            assert counted == pytest.approx(getattr(memory, place), rel=0.05), place
        assert state.get("gathered", {"device": 0})["device"] == memory.gathered


@pytest.mark.slow
@pytest.mark.parametrize("method", ADAPTED)
def test_parameters_are_counted_and_planned_where_deepspeed_puts_them(placed: Measurement, method: str) -> None:
    predicted = adapted(method).memory
    assert predicted is not None
    for rank in placed[method]:
        counted = rank["state"]["parameters"]
        assert counted["host"] == rank["partitions"]["host"]
        for place, size in counted.items():
            assert size == pytest.approx(getattr(predicted.parameters, place), rel=0.02), place
