"""Matrices cut over real gloo ranks by engine=torch: the training of one plain process, and the bytes that are planned.

Alone, along the sequence, and with replicas that hold all of a rank's part, share it out, or some of them do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import checkpoints
import pytest
from alone import Alone, train_alone
from marks import slow, tier
from planning import Measurement, make_plan
from transformers import AutoModelForCausalLM

from llmexp.training.plan.training_plan import TrainingPlan

pytestmark = pytest.mark.ranks

SAMPLES, STEPS = 4, 4
SMALL = (
    *("model.hidden_size=64", "model.intermediate_size=96", "model.head_dim=16", "model.vocab_size=288"),
    "model.num_layers=2",
)
# Larger than any norm: it is measured, and nothing is clipped.
MEASURED = "optimizer.clip_norm=1000"
SEQUENCE = "parallelism.sequence=true"
# Layouts by ranks, each with its words; all of them train on the same 4 sequences a step.
LAYOUTS: dict[str, tuple[int, str]] = {
    "Naive": (2, ""),
    "F, sequence": (2, f"method=F {SEQUENCE}"),
    "R, sequence": (2, f"method=R {SEQUENCE}"),
    "F+R": (2, "method=F+R"),
    "RS": (2, "method=RS"),
    "Z2": (2, "method=Z2"),
    "Z3, sequence": (2, f"method=Z3 {SEQUENCE}"),
    "padded, sequence": (2, f"data.pack=false {SEQUENCE}"),
    "bf16_mixed": (2, "precision=bf16_mixed"),
    "bf16_mixed, Z3": (2, "precision=bf16_mixed method=Z3"),
    "dp 2": (4, "parallelism.dp=2"),
    "dp 2, sequence": (4, f"parallelism.dp=2 {SEQUENCE}"),
    "dp 2, Z2": (4, "parallelism.dp=2 method=Z2"),
    "shard 1, Z3": (2, "parallelism.tp=1 parallelism.dp=2 parallelism.shard=1 method=Z3"),
    "shard 2 of dp 4, Z3": (4, "parallelism.tp=1 parallelism.dp=4 parallelism.shard=2 method=F+Z3"),
    "shard 2 of dp 4, Z2": (4, "parallelism.tp=1 parallelism.dp=4 parallelism.shard=2 method=Z2"),
    "shard 1 of dp 2, Z3": (4, f"parallelism.dp=2 parallelism.shard=1 method=Z3 {SEQUENCE}"),
    "dp 2, F+R+Z3, sequence": (4, f"parallelism.dp=2 method=F+R+Z3 {SEQUENCE}"),
}
QUICK = {"Naive", "R, sequence", "Z3, sequence", "bf16_mixed", "shard 1, Z3"}
SHORT = {*LAYOUTS} - {"F, sequence", "Z2", "dp 2, sequence", "shard 2 of dp 4, Z2"}
EVERY = [pytest.param(name, marks=tier(name, QUICK, SHORT)) for name in LAYOUTS]
FP32 = [each for each, name in zip(EVERY, LAYOUTS, strict=True) if "bf16" not in name]
# Measured: 1e-7 of losses, 4e-7 of gradient norms.
FP32_TOLERANCE, BF16_TOLERANCE = 1e-6, 5e-3


@cache
def plan(words: str) -> TrainingPlan:
    dp = next((dp for dp in (2, 4) if f"parallelism.dp={dp}" in words), 1)
    common = ["engine=torch", "hardware=cpu", "data.seq_len=48", "measure=smoke", *SMALL]
    protocol = ["measure.warmup_steps=1", f"measure.steps={STEPS - 1}", f"batch.accumulation={SAMPLES // dp}"]
    defaults = ["precision=fp32"] * ("precision" not in words) + ["parallelism.dp=1"] * (dp == 1)
    defaults += ["parallelism.tp=2"] * ("parallelism.tp" not in words)
    made = make_plan(*common, *protocol, *defaults, *words.split(), MEASURED)
    assert made.skip is None
    return made


def one_process(words: str) -> Alone:
    return _one_process(" ".join(word for word in words.split() if word.startswith(("model", "data"))))


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
    memory = plan(LAYOUTS[name][1]).memory
    assert memory is not None
    for rank in observed[name]:
        for kind in ("parameters", "gradients", "optimizer"):
            assert rank["state"][kind] == getattr(memory, kind).device, kind
        assert rank["state"].get("gathered", 0) == memory.gathered


@pytest.mark.parametrize(
    ("ranks", "words"), [(2, f"parallelism.dp=1 {SEQUENCE}"), slow(4, "parallelism.dp=2 method=Z3")]
)
def test_transformers_loads_the_whole_model_that_was_saved(
    observe: Callable[..., Measurement], ranks: int, words: str
) -> None:
    common = ["engine=torch", "hardware=cpu", "data.seq_len=48", "precision=fp32", "optimizer.lr=1e-2", *SMALL]
    made = make_plan(*common, "parallelism.tp=2", "task.save_model=true", *words.split())
    first = observe({"saved": made}, ranks, "keeping_worker")["saved"][0]
    loss, _ = checkpoints.first_outputs(made, AutoModelForCausalLM.from_pretrained(Path(first["folder"]) / "model"))
    assert first["losses"][2] < first["losses"][0] - 0.1
    assert loss == pytest.approx(first["losses"][2], rel=FP32_TOLERANCE)
