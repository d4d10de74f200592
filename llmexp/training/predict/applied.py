"""The calibration of a plan: what its outputs folder has of the same machine, engine and stack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

from llmexp.launch.stack import stack_digest
from llmexp.record.calibration_file import read_calibrations
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.predict.calibration import Multipliers


@dataclass(frozen=True)
class Applied:
    """The multipliers for one plan, and the number of measured runs behind them."""

    multipliers: Multipliers
    runs: int

    def words(self, source: str) -> str:
        """Say what a prediction goes by."""
        return f"{source}, calibrated by {self.runs} run{'s' * (self.runs > 1)} here" if self.runs else source


def applied_to(plan: TrainingPlan, source: str) -> Applied:
    """Return the calibration of a plan by what its outputs folder has of the same machine, engine and stack."""
    config, none = plan.config, Applied({}, 0)
    if not config.runtime.plain:
        return none
    for each in read_calibrations(Path(config.sweep.outputs)):
        names = (each.hardware, each.engine, each.basis) == (config.hardware.name, config.engine.name, basis_of(source))
        if names and each.stack == stack_now(plan, each.device):
            return Applied(*each.for_run(plan.id))
    return none


def basis_of(source: str) -> str:
    """Return what must be the same for runs to calibrate a prediction: what its rates go by, and what predicts."""
    return f"{source} ({_digest()})"


@cache
def _digest() -> str:
    """Return 8 hexadecimal digits that change with the code and the constants of predictions."""
    folder = files(__package__)
    found: Mapping[str, str] = {each.name: each.read_text("utf-8") for each in folder.iterdir() if each.is_file()}
    text = "".join(f"{name}\n{found[name]}" for name in sorted(found) if name.endswith((".py", ".yaml")))
    return sha256(text.encode()).hexdigest()[:8]


def stack_now(plan: TrainingPlan, device: str) -> str:
    """Return the stack that would run the plan now: a GPU by its name, also where it is not here, a CPU as it is."""
    return stack_digest(plan, device if plan.config.hardware.device == "cuda" else None)
