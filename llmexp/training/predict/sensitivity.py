"""Which limit to buy: how much faster a step would be if one number of the machine were a quarter larger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llmexp.schema import HardwareConfig
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.predict.applied import applied_to
from llmexp.training.predict.changed import NUMBERS
from llmexp.training.predict.predictor import predictor_of

QUARTER = 1.25
# Less is below the errors of rounding, and nobody buys it.
_TELLING = 0.005


@dataclass(frozen=True)
class Sensitivity:
    """A number of the hardware file, what people call it, and the share by which tokens/s would grow with it."""

    number: str
    words: str
    gain: float


def sensitivity(plan: TrainingPlan, factor: float = QUARTER) -> list[Sensitivity]:
    """Return the predicted gain of each number times `factor`, the largest first; empty where nothing is predicted.

    A processor's rates are measured, so that no number of its file changes its prediction.
    """
    hardware = plan.config.hardware
    if plan.predicted is None or hardware.device == "cpu":
        return []
    now = predictor_of(plan)
    multipliers = applied_to(plan, now.source).multipliers
    step_s = now.step(multipliers).whole
    gains = {
        number: step_s / predictor_of(_on(plan, _scaled(hardware, number, factor))).step(multipliers).whole - 1
        for number in NUMBERS
        if getattr(hardware, number)
    }
    found = [Sensitivity(number, NUMBERS[number], float(gain)) for number, gain in gains.items()]
    return sorted(found, key=lambda one: -one.gain)


def sensitivity_words(plan: TrainingPlan) -> str:
    """Say in one line what a quarter more of each number would gain; empty where nothing is predicted."""
    found = sensitivity(plan)
    told = [f"{one.words} {one.gain:+.0%}" for one in found if one.gain >= _TELLING]
    if not found:
        return ""
    return f"if a quarter larger: {', '.join(told)}" if told else "no number of the hardware file: launches and host"


def _scaled(hardware: HardwareConfig, number: str, factor: float) -> HardwareConfig:
    value: Any = getattr(hardware, number)
    larger = {key: factor * each for key, each in value.items()} if isinstance(value, dict) else factor * value
    return hardware.model_copy(update={number: larger})


def _on(plan: TrainingPlan, hardware: HardwareConfig) -> TrainingPlan:
    return plan.model_copy(update={"config": plan.config.model_copy(update={"hardware": hardware})})
