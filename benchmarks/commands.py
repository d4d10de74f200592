"""The cost of the commands that people type.

Start-up and the driver are given as ratios of CPU seconds, the first step in wall time.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.figure import Figure
from benchmarks.interval import interval, paired_ratio
from benchmarks.process import Cost, cost_of
from llmexp.analysis.device_time import useful_fraction
from llmexp.record.folder import find_runs

LLMEXP = (sys.executable, "-m", "llmexp")
# Hydra alone reads the same files, with the plugins that these names give, found like those of an installed package;
# nothing is checked or planned.
PLUGINS = ", ".join(f"hydra_plugins.llmexp_{name}" for name in ("sweeper.sweeper", "local.launcher", "slurm.launcher"))
BARE_MAIN = (
    f"import hydra, {PLUGINS}; "
    "hydra.main(version_base='1.3', config_path='pkg://llmexp.conf', config_name='config')(lambda config: None)()"
)
BARE = (sys.executable, "-c", BARE_MAIN, "hardware=cpu", "--cfg", "job")
TINY = ("model=tiny", "hardware=cpu", "parallelism.dp=2")
METHODS = ("Naive", "F", "R")
# Of a run in a sweep of three: its share of start-up, pictures and report and, in the second, of importing MLflow.
DRIVER_LIMITS = {"none": 3.0, "mlflow": 4.5}
IDLE_CORES = 0.2
PATIENCE_S = 120.0


def questions(folder: Path, times: int) -> list[Figure]:
    """Measure start-up as ratios of CPU seconds.

    One compares with Hydra alone over the same files, one compares a sweep that has all its answers with its plan.
    """
    _sweep(folder, "warm", tracking="mlflow", measure="smoke", rerun="stale")
    pairs = {
        "--cfg job, over a bare hydra.main": (("hardware=cpu", "--cfg", "job"), 1.35),
        "plan, over a bare hydra.main": (("plan", "method=F+R+Z3", "model=13b", "hardware=a800"), None),
    }
    found = [_ratio(folder, name, ([*LLMEXP, *words], BARE), times, limit) for name, (words, limit) in pairs.items()]
    known = _words("warm", tracking="mlflow", measure="smoke", rerun="stale")
    return [
        *found,
        _ratio(folder, "a sweep of answers, over its plan", ([*LLMEXP, *known], [*LLMEXP, "plan", *known]), times, 1.5),
    ]


def _ratio(
    folder: Path, name: str, pair: tuple[Sequence[str], Sequence[str]], times: int, limit: float | None
) -> Figure:
    """Return the CPU seconds of the first command over those of the second.

    Pairs run one after the other; the first pair warms caches and does not count.
    """
    costs = [[cost_of(command, folder).all_cpu_s for command in pair] for _ in range(times + 1)][1:]
    over, under = zip(*costs, strict=True)
    return Figure(name, "x", paired_ratio(over, under), times, limit=limit)


def first_step(folder: Path, times: int) -> Figure:
    """Measure wall seconds from the command to the first step's sample; a first run warms caches and does not count."""
    measured = [_to_first_step(folder) for _ in range(times + 1)][1:]
    others = max(cost.others_cores for _, cost in measured)
    busy = f"other programs used {others:.1f} cores" if others > IDLE_CORES else ""
    return Figure(
        "command to first step, tiny",
        "s",
        interval([seconds for seconds, _ in measured]),
        times,
        limit=6.0,
        unjudged=busy,
    )


def sweeps(folder: Path, times: int) -> list[Figure]:
    """Measure the driver's own CPU seconds a run, without and with MLflow and a bare Hydra application in turn.

    Their limits are ratios, which another processor changes little. The last figure is the share of the held time that
    was measured steps.
    """
    _sweep(folder, "warm", tracking="mlflow", measure="smoke")
    cost_of(BARE, folder)
    costs: dict[str, list[float]] = {tracking: [] for tracking in DRIVER_LIMITS}
    bare, useful = [], []
    for _ in range(times):
        for tracking, found in costs.items():
            found.append(_sweep(folder, tracking, tracking, measure="quick").own_cpu_s / len(METHODS))
            runs = find_runs(folder / "outputs" / tracking)
            useful.append(useful_fraction((run, run.result()) for run in runs) or 0.0)
        bare.append(cost_of(BARE, folder).own_cpu_s)
    drivers = []
    for tracking, limit in DRIVER_LIMITS.items():
        name, found = f"driver, a run, tracking={tracking}", costs[tracking]
        over_bare = paired_ratio(found, bare)
        drivers += [
            Figure(name, "CPU-s", interval(found), times),
            Figure(f"{name}, over a bare hydra.main", "x", over_bare, times, limit=limit),
        ]
    return [*drivers, Figure("useful fraction, tiny, measure=quick", "", interval(useful), len(useful))]


def _to_first_step(folder: Path) -> tuple[float, Cost]:
    shutil.rmtree(folder / "outputs", ignore_errors=True)
    seen_s: list[float] = []
    patient_until_s = time.monotonic() + PATIENCE_S

    def wait() -> None:
        while not any(path.stat().st_size for path in folder.glob("outputs/*/*/repeat.0/samples.0.jsonl")):
            if time.monotonic() > patient_until_s:
                raise RuntimeError(f"no step within {PATIENCE_S:.0f} s: see {folder / 'output.txt'}")
            time.sleep(0.01)
        seen_s.append(time.monotonic())

    cost = cost_of([*LLMEXP, *TINY, "rerun=all", "measure=smoke", "tracking=none"], folder, beside=wait)
    return seen_s[0] - cost.begun_s, cost


def _sweep(folder: Path, name: str, tracking: str, measure: str, rerun: str = "all") -> Cost:
    return cost_of([*LLMEXP, *_words(name, tracking, measure, rerun)], folder)


def _words(name: str, tracking: str, measure: str, rerun: str) -> list[str]:
    run = [
        f"method={','.join(METHODS)}",
        f"measure={measure}",
        f"tracking={tracking}",
        f"sweep.name={name}",
        f"rerun={rerun}",
    ]
    return [*TINY, *run]
