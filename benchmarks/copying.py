"""The cost of copying runs to MLflow: one run, which is mostly MLflow's import, and each further one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.commands import LLMEXP, TINY
from benchmarks.figure import Figure
from benchmarks.folders import multiply
from benchmarks.interval import interval, paired_ratio
from benchmarks.process import cost_of
from llmexp.record.folder import RunFolder, find_runs

RUNS = 20
# Of one run, over a program that imports MLflow and asks the store for its experiment. llmexp keeps the garbage
# collector from MLflow's modules, so it costs less.
ALONE_LIMIT = 1.0
# Twice of what was measured, as processors differ that much.
FURTHER_LIMIT_S = 0.3
_BARE = "import sys; from mlflow import MlflowClient; MlflowClient(sys.argv[1]).get_experiment_by_name('llmexp')"
_COPY = """
import sys
from pathlib import Path
from llmexp.record.folder import RunFolder
from llmexp.record.mlflow import sync
from llmexp.schema import TrackingConfig
sync([RunFolder(Path(path)) for path in sys.argv[2:]], TrackingConfig(name="mlflow", uri=sys.argv[1]))
"""


def copying(folder: Path, times: int) -> list[Figure]:
    """Measure the CPU seconds of a program that copies a run, and of one that copies twenty, into a SQLite store.

    Runs have a training's curves, a profiled step as a trace and a data set; every second one kept an adapter. A first
    round makes the store's tables and does not count.
    """
    folder.mkdir(parents=True)
    for words in (("measure=quick",), ("measure=smoke", "task=finetune", "method=L", "adapter.save=true")):
        cost_of([*LLMEXP, *TINY, "tracking=none", "sweep.name=seed", *words], folder)
    runs = multiply(find_runs(folder / "outputs" / "seed"), folder / "many", times + 1, RUNS + 1)
    store = f"sqlite:///{folder.resolve()}/many/mlflow.db"
    alone, bare, further = [], [], []
    for first in range(0, len(runs), RUNS + 1):
        alone.append(_copy(folder, store, runs[first : first + 1]))
        bare.append(cost_of((sys.executable, "-c", _BARE, store), folder).all_cpu_s)
        twenty = _copy(folder, store, runs[first + 1 : first + 1 + RUNS])
        further.append((twenty - alone[-1]) / (RUNS - 1))
    over_import = paired_ratio(alone[1:], bare[1:])
    return [
        Figure("copy to MLflow, one run", "CPU-s", interval(alone[1:]), times),
        Figure("copy to MLflow, one run, over MLflow's import", "x", over_import, times, limit=ALONE_LIMIT),
        Figure("copy to MLflow, each further run", "CPU-s", interval(further[1:]), times, limit=FURTHER_LIMIT_S),
    ]


def _copy(folder: Path, store: str, runs: Sequence[RunFolder]) -> float:
    paths = [str(run.path.resolve()) for run in runs]
    return cost_of((sys.executable, "-c", _COPY, store, *paths), folder).all_cpu_s
