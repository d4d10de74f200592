"""Layouts of engine=torch whose ranks share a model: what they are held against is the training of one plain process.

All train a small model on the same 4 sequences a step.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import checkpoints
import pytest
import torch
from alone import CPU, Alone, train_alone
from marks import tier
from planning import Measurement, make_plan
from transformers import AutoModelForCausalLM

from llmexp.launchers.models import building
from llmexp.launchers.models.weights import weights_of
from llmexp.training.plan.training_plan import TrainingPlan

SAMPLES, STEPS, SEQ_LEN, LAYERS = 4, 4, 48, 2
SMALL = (
    *("model.hidden_size=64", "model.intermediate_size=96", "model.head_dim=16", "model.vocab_size=288"),
    f"model.num_layers={LAYERS}",
)
ENGINE = ("engine=torch", "hardware=cpu", f"data.seq_len={SEQ_LEN}")
COMMON = (*ENGINE, *SMALL)
# The norm is larger than any: it is measured, and nothing is clipped.
PROTOCOL = ("measure=smoke", "measure.warmup_steps=1", f"measure.steps={STEPS - 1}", "optimizer.clip_norm=1000")
FP32_TOLERANCE, BF16_TOLERANCE = 1e-6, 5e-3


@cache
def plan(words: str) -> TrainingPlan:
    dp = next((dp for dp in (2, 4) if f"parallelism.dp={dp}" in words), 1)
    defaults = ["precision=fp32"] * ("precision" not in words) + ["parallelism.dp=1"] * (dp == 1)
    common = ENGINE if "model.config." in words else COMMON
    made = make_plan(*common, *PROTOCOL, f"batch.accumulation={SAMPLES // dp}", *defaults, *words.split())
    assert made.skip is None, made.skip
    return made


def one_process(words: str) -> Alone:
    """The same model and sequences without any parallelism."""
    return _one_process(" ".join(word for word in words.split() if word.startswith(("model", "data"))))


@cache
def _one_process(words: str) -> Alone:
    return train_alone(plan(words))


def mean_losses(ranks: list[dict[str, Any]]) -> list[float]:
    return [sum(step) / len(ranks) for step in zip(*(rank["loss"] for rank in ranks), strict=True)]


def compare_saved(observe: Callable[..., Measurement], words: str) -> None:
    """Let transformers load the whole model that ranks have saved after two steps."""
    made = make_plan(*COMMON, "precision=fp32", "optimizer.lr=1e-2", "task.save_model=true", *words.split())
    first = observe({"saved": made}, made.processes, "keeping_worker")["saved"][0]
    loss, _ = checkpoints.first_outputs(made, AutoModelForCausalLM.from_pretrained(Path(first["folder"]) / "model"))
    assert first["losses"][2] < first["losses"][0] - 0.1
    assert loss == pytest.approx(first["losses"][2], rel=FP32_TOLERANCE)


def load_saved_adapter(observe: Callable[..., Measurement], words: str) -> None:
    """Let PEFT load the adapter that ranks have saved after two steps, on the base that they had."""
    from peft import PeftModel  # seconds, for all that collect the files that import this

    made = make_plan(*COMMON, "precision=fp32", "adapter.save=true", *words.split())
    first = observe({"saved": made}, made.processes, "keeping_worker")["saved"][0]
    config = made.config
    weights = weights_of(config)
    base = building.build(building.configuration(config.model), torch.float32, "eager", device=CPU, weights=weights)
    loss, _ = checkpoints.first_outputs(made, PeftModel.from_pretrained(base, Path(first["folder"]) / "adapter"))
    assert first["losses"][2] < first["losses"][0] - 0.1, first["losses"]
    assert loss == pytest.approx(first["losses"][2], rel=FP32_TOLERANCE)


@dataclass(frozen=True)
class Layouts:
    """Each with its words, by name; `quick` and `short` are as in marks.tier."""

    words: Mapping[str, str]
    quick: Container[str]
    short: Container[str]

    @property
    def every(self) -> list[Any]:
        return [pytest.param(name, marks=tier(name, self.quick, self.short)) for name in self.words]

    @property
    def fp32(self) -> list[Any]:
        return [each for each, name in zip(self.every, self.words, strict=True) if "bf16" not in name]

    @property
    def bf16(self) -> list[Any]:
        return [each for each, name in zip(self.every, self.words, strict=True) if "bf16" in name]

    def plan(self, name: str) -> TrainingPlan:
        return plan(self.words[name])

    def train(self, observe: Callable[..., Measurement], asked: Container[str]) -> Measurement:
        """Train those that are asked for, on as many ranks as each has."""
        plans = {name: self.plan(name) for name in self.words if name in asked}
        found: Measurement = {}
        for ranks in {made.processes for made in plans.values()}:
            found |= observe({n: made for n, made in plans.items() if made.processes == ranks}, ranks, "updates_worker")
        return found

    def compare(self, observed: Measurement, name: str) -> None:
        """Hold losses and gradient norms in fp32 against those of one process."""
        alone, ranks = one_process(self.words[name]), observed[name]
        assert alone.losses[-1] < alone.losses[0] - 0.01
        assert mean_losses(ranks) == pytest.approx(alone.losses, rel=FP32_TOLERANCE)
        for rank in ranks:
            assert rank["gradient_norm"] == pytest.approx(alone.gradient_norms, rel=FP32_TOLERANCE)
            assert rank["first"] == pytest.approx(alone.gradient_norms[0], rel=FP32_TOLERANCE)

    def compare_bf16(self, observed: Measurement, name: str) -> None:
        """Hold the curve in bf16 against that of one process in fp32."""
        expected, ranks = one_process(self.words[name]), observed[name]
        assert mean_losses(ranks) == pytest.approx(expected.losses, rel=BF16_TOLERANCE)
        assert ranks[0]["gradient_norm"] == pytest.approx(expected.gradient_norms, rel=10 * BF16_TOLERANCE)

    def compare_state(self, observed: Measurement, name: str) -> None:
        """Hold the bytes of the ranks with the fullest stages against the plan; the ranks of a stage are alike.

        Z1 shares out whole parameters, so that its parts differ, and copies of their gradients.
        """
        made, ranks = self.plan(name), observed[name]
        assert made.memory is not None
        a_stage = len(ranks) // made.dims.pp
        for kind in ("parameters", "gradients", "optimizer"):
            held = [rank["state"][kind] for rank in ranks]
            stages = [held[first : first + a_stage] for first in range(0, len(held), a_stage)]
            assert max(map(sum, stages)) == a_stage * getattr(made.memory, kind).device, kind
            assert all(len({*stage}) == 1 for stage in stages) or ("Z1" in name and kind != "parameters")
        gathered = [rank["state"].get("gathered", 0) for rank in ranks]
        assert max(gathered) == made.memory.gathered
        assert len({*gathered}) == 1 or made.dims.pp > 1
