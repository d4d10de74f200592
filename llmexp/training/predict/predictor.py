"""What predicts the step of a plan before any calibration: its work, and the rates of its machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.predict.calibration import Multipliers, calibrated
from llmexp.training.predict.cpu_rates import cpu_rates
from llmexp.training.predict.cpu_step import constants, cpu_step
from llmexp.training.predict.rates import rates_of
from llmexp.training.predict.schedule import StepTime, step_time
from llmexp.training.predict.work import work_of


@dataclass(frozen=True)
class Predictor:
    """The step of one plan as a function of multipliers, and what its rates go by."""

    step: Callable[[Multipliers], StepTime]
    source: str


def predictor_of(plan: TrainingPlan) -> Predictor:
    """Return the predictor of a plan that `unpredicted` has nothing to say of."""
    if on_cpu := cpu_rates(plan):
        return Predictor(lambda multipliers: cpu_step(plan, on_cpu, constants(), multipliers), on_cpu.source)
    rates, source = rates_of(plan)
    work = work_of(plan)
    return Predictor(lambda multipliers: step_time(work, calibrated(rates, multipliers)), source)
