"""`python -m benchmarks.prediction.on_cpu FOLDER` fits the constants of steps on a processor, and judges predictions.

FOLDER has the runs of `python -m benchmarks.prediction.cpu_runs FOLDER REPEATS`, and the microbenchmarks of one rank
with one thread and of two ranks. Each method is predicted by constants that saw none of its runs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np
import yaml

from benchmarks.prediction.calibrated import write_intervals
from benchmarks.prediction.cpu_runs import busy_s, folders
from llmexp.inputs.shape import shape_of
from llmexp.record.plan import RunPlan
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.predict import cpu_step
from llmexp.training.predict.calibrated_interval import CPU
from llmexp.training.predict.cpu_rates import CpuRates, cpu_rates
from llmexp.training.predict.cpu_step import CpuConstants

Vector = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
CONSTANTS = Path(cpu_step.__file__).with_name("cpu_constants.yaml")
# Round figures of the right size, from which a fit begins and to which it is drawn.
STARTS = CpuConstants(
    elementwise=14.0,
    backward_elementwise=28.0,
    attention=1.0,
    loss=4.0,
    layer_calls=800.0,
    backward_calls=2.0,
    recomputing=1.5,
    adapter_calls=1.5,
    adapter_elementwise=1.5,
    update_layer_calls=600.0,
    update=2.0,
    reducing=1.0,
    sharded_layer_calls=800.0,
    gathering_layer_calls=8000.0,
    gathers=10.0,
    host_update=3.0,
)
# The spread of their logarithms that is to be expected, and the usual error of a prediction.
_SPREAD, _USUAL = 0.5, 0.08


@dataclass(frozen=True)
class Truth:
    """A measured run: its plan, the rates of the machine, and a step's seconds of processor time in each repeat."""

    plan: TrainingPlan
    rates: CpuRates
    repeats_s: tuple[float, ...]

    @property
    def step_s(self) -> float:
        """The median of the repeats."""
        return median(self.repeats_s)

    @property
    def method(self) -> str:
        """What is left out together."""
        return self.plan.method

    def error(self, known: CpuConstants) -> float:
        """Return the logarithm of predicted over measured seconds."""
        return float(np.log(cpu_step.cpu_step(self.plan, self.rates, known, {}).whole / self.step_s))


def truths(outputs: Path) -> list[Truth]:
    """Return all runs that were measured, each with its repeats."""
    plans: dict[str, TrainingPlan] = {}
    times: dict[str, list[float]] = {}
    for run in folders(outputs):
        time_s = busy_s(run)
        plan = RunPlan.read(run.plan_path)
        if time_s and isinstance(plan, TrainingPlan):
            plans[plan.id] = plan
            times.setdefault(plan.id, []).append(time_s)
    found = [(plan, cpu_rates(_in(plan, outputs))) for plan in plans.values()]
    return [Truth(plan, rates, tuple(times[plan.id])) for plan, rates in found if rates]


def _in(plan: TrainingPlan, outputs: Path) -> TrainingPlan:
    sweep = plan.config.sweep.model_copy(update={"outputs": str(outputs)})
    return plan.model_copy(update={"config": plan.config.model_copy(update={"sweep": sweep})})


def fitted(runs: Sequence[Truth]) -> CpuConstants:
    """Return the constants by Gauss-Newton steps on logarithms, robust, and drawn to where they start."""
    names, start = list(asdict(STARTS)), np.log(np.array(list(asdict(STARTS).values())))

    def errors(logs: Vector) -> Vector:
        known = replace(STARTS, **dict(zip(names, np.exp(logs).tolist(), strict=True)))
        return np.array([run.error(known) for run in runs])

    logs = start.copy()
    for _ in range(40):
        now = errors(logs)
        slopes = np.stack([(errors(logs + 1e-4 * unit) - now) / 1e-4 for unit in np.eye(len(logs))], axis=1)
        weights = 1 / (_USUAL**2 * np.sqrt(1 + (now / _USUAL) ** 2))
        square = (slopes * weights[:, None]).T @ slopes + np.eye(len(logs)) / _SPREAD**2
        step = np.linalg.solve(square, -slopes.T @ (weights * now) - (logs - start) / _SPREAD**2)
        logs = logs + np.clip(step, -0.4, 0.4)
        if np.abs(step).max() < 1e-4:
            break
    return replace(STARTS, **{name: float(f"{np.exp(at):.4g}") for name, at in zip(names, logs, strict=True)})


def held_out(runs: Sequence[Truth]) -> list[tuple[Truth, float]]:
    """Return each run with its error by constants that saw no run of its method."""
    found = []
    for method in dict.fromkeys(run.method for run in runs):
        known = fitted([run for run in runs if run.method != method])
        found += [(run, run.error(known)) for run in runs if run.method == method]
    return found


def main(words: Sequence[str]) -> None:
    """Fit, judge, write the constants and the interval, and print each run."""
    runs = truths(Path(words[0]))
    judged, known = held_out(runs), fitted(runs)
    CONSTANTS.write_text(_HEAD + yaml.safe_dump(asdict(known), sort_keys=False), encoding="utf-8")
    write_intervals({CPU: _interval(np.array([error for _, error in judged]))})
    print(*(_line(run, error, run.error(known)) for run, error in judged), sep="\n")
    off = np.abs(np.expm1([error for _, error in judged]))
    spread = [max(run.repeats_s) / min(run.repeats_s) - 1 for run in runs if len(run.repeats_s) > 1]
    print(
        f"{len(off)} runs, method left out: median error {np.median(off):.1%}, 95 % below {np.quantile(off, 0.95):.1%}"
    )
    print(
        f"repeats of a run differ by {median(spread or [0.0]):.1%} in the median, by {max(spread or [0.0]):.1%} at most"
    )


def _line(run: Truth, error: float, fitted_error: float) -> str:
    config = run.plan.config
    shape = shape_of(config.model)
    assert shape is not None
    sizes = f"hidden {shape.hidden_size} batch {run.plan.batch.micro} x {config.data.seq_len}"
    off = f"{np.expm1(error):+7.1%} left out, {np.expm1(fitted_error):+7.1%} fitted"
    return f"{run.method:6} {sizes:26} {run.plan.processes} ranks {1e3 * run.step_s:7.1f} ms {off}"


_HEAD = """\
# Written by `python -m benchmarks.prediction.on_cpu`; llmexp/training/predict/cpu_step.py says what each number is.
"""


def _interval(errors: Vector) -> list[float]:
    """Return the conformal ends of the 90 % interval of tokens/s as shares of the prediction, and the runs behind."""
    n = len(errors)
    # These are logarithms of predicted over measured time, and so of measured over predicted speed.
    shares = (max(0.0, 0.05 - 0.95 / n), min(1.0, 0.95 * (n + 1) / n))
    return [*(round(float(np.exp(np.quantile(errors, share))), 3) for share in shares), n]


if __name__ == "__main__":
    main(sys.argv[1:])
