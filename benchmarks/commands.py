"""What the commands that people type cost: CPU seconds of the driver, and the wall time to the first step."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

from benchmarks.figure import Figure
from benchmarks.interval import interval
from benchmarks.process import Cost, cost_of
from llmexp.analysis.held import useful_fraction
from llmexp.record.folder import find_runs

LLMEXP = (sys.executable, "-m", "llmexp")
TINY = ("model=tiny", "hardware=cpu", "parallelism.dp=2", "rerun=all")
METHODS = ("Naive", "F", "R")
IDLE_CORES = 0.2
PATIENCE_S = 120.0


def questions(folder: Path, times: int) -> list[Figure]:
    """CPU seconds of `--cfg job` and of `plan`, in turn."""
    words = {"--cfg job": ("--cfg", "job"), "plan": ("plan", "method=F+R+Z3", "model=13b", "hardware=a800")}
    costs: dict[str, list[float]] = {name: [] for name in words}
    for _ in range(times):
        for name, command in words.items():
            costs[name].append(cost_of([*LLMEXP, *command], folder).all_cpu_s)
    return [Figure(name, "CPU-s", interval(values), times, limit=0.6) for name, values in costs.items()]


def first_step(folder: Path, times: int) -> Figure:
    """Wall seconds from the command to the first step's sample; caches are warmed by a run that does not count."""
    measured = [_to_first_step(folder) for _ in range(times + 1)][1:]
    others = max(cost.others_cores for _, cost in measured)
    busy = f"other programs used {others:.1f} cores" if others > IDLE_CORES else ""
    return Figure("command to first step, tiny", "s", interval([seconds for seconds, _ in measured]), times, limit=6.0, unjudged=busy)


def sweeps(folder: Path, times: int) -> list[Figure]:
    """The driver's own CPU seconds a run, without and with MLflow in turn, and how much of the held time was measured steps."""
    _sweep(folder, "warm", tracking="mlflow", measure="smoke")
    costs: dict[str, list[float]] = {"none": [], "mlflow": []}
    useful = []
    for _ in range(times):
        for tracking, found in costs.items():
            found.append(_sweep(folder, tracking, tracking, measure="quick").own_cpu_s / len(METHODS))
            useful.append(useful_fraction(find_runs(folder / "outputs" / tracking)) or 0.0)
    drivers = [Figure(f"driver, a run, tracking={name}", "CPU-s", interval(found), times, limit=1.5) for name, found in costs.items()]
    return [*drivers, Figure("useful fraction, tiny, measure=quick", "", interval(useful), len(useful))]


def _to_first_step(folder: Path) -> tuple[float, Cost]:
    shutil.rmtree(folder / "outputs", ignore_errors=True)
    seconds: list[float] = []
    start_s = time.perf_counter()

    def wait() -> None:
        while not any(path.stat().st_size for path in folder.glob("outputs/*/*/repeat.0/samples.0.jsonl")):
            if time.perf_counter() - start_s > PATIENCE_S:
                raise RuntimeError(f"no step within {PATIENCE_S:.0f} s: see {folder / 'output.txt'}")
            time.sleep(0.01)
        seconds.append(time.perf_counter() - start_s)

    cost = cost_of([*LLMEXP, *TINY, "measure=smoke", "tracking=none"], folder, beside=wait)
    return seconds[0], cost


def _sweep(folder: Path, name: str, tracking: str, measure: str) -> Cost:
    words = (f"method={','.join(METHODS)}", f"measure={measure}", f"tracking={tracking}", f"sweep.name={name}")
    return cost_of([*LLMEXP, *TINY, *words], folder)
