"""`python -m benchmarks scale` measures the cost of 10,000 run folders and of 1,000 planned runs.

It also measures how much of recording is MLflow's own cost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks.commands import LLMEXP, TINY
from benchmarks.figure import Figure
from benchmarks.folders import multiply
from benchmarks.interval import interval, paired_ratio
from benchmarks.process import cost_of
from llmexp.record.folder import RunFolder, find_runs
from llmexp.record.index import INDEX
from llmexp.record.mlflow import sync
from llmexp.record.mlflow.tags import status_of, tags_of
from llmexp.record.trackers.content import RunContent, read
from llmexp.schema import TrackingConfig

SWEEPS, RUNS = 50, 200
# 8 models, 3 precisions, 2 optimizers, 3 methods, 7 batches: 336 choices of groups give 1,008 runs.
PLANNED = (
    "model=1b,7b,13b,70b,tiny,125m,llama3-8b,qwen3-8b",
    "precision=bf16_mixed,bf16_pure,fp32",
    "optimizer=adamw,adamw_cpuadam",
    "method=F,F+R+Z3,Z3",
    "batch.micro=1,2,4,8,16,32,64",
    "hardware=h100",
    "data=synthetic",
)


def scale(folder: Path) -> Iterator[Figure]:
    """Yield all figures, each as soon as it is measured."""
    yield from planning(folder, times=2)
    cost_of([*LLMEXP, *TINY, "measure=quick", "measure.profile=false", "tracking=none", "sweep.name=seed"], folder)
    runs = multiply(find_runs(folder / "outputs" / "seed"), folder / "many", SWEEPS, RUNS)
    yield from listings(folder, times=5)
    yield from recording(runs, folder / "stores", pairs=8, batch=25)


def planning(folder: Path, times: int) -> list[Figure]:
    """Measure composing, checking and planning of a large sweep."""
    costs = [cost_of([*LLMEXP, "plan", "--json", *PLANNED], folder) for _ in range(times)]
    return [Figure("plan, 1,008 runs", "CPU-s", interval([cost.all_cpu_s for cost in costs]), times, limit=40.0)]


def listings(folder: Path, times: int) -> Iterator[Figure]:
    """Measure `status` of all runs without an index and with one, the table of one sweep, and the page of all runs.

    CPU seconds stand for wall time on an idle machine, as each command computes in one thread.
    """
    page = ("report", "many", "--html", "all.html")
    for name, words, fresh, limits in (
        ("status, 10,000 runs, no index", ("status", "many"), True, (None, 300.0)),
        ("status, 10,000 runs", ("status", "many"), False, (1.0, 300.0)),
        ("report, 200 of 10,000 runs", ("report", "many/sweep000"), False, (1.0, 300.0)),
        ("report, 10,000 runs as HTML", page, False, (10.0, 500.0)),
    ):
        costs = []
        for _ in range(times):
            for index in folder.glob(f"many/*/{INDEX}") if fresh else ():
                index.unlink()
            costs.append(cost_of([*LLMEXP, *words], folder))
        yield Figure(name, "CPU-s", interval([cost.all_cpu_s for cost in costs]), times, limit=limits[0])
        peaks = interval([cost.peak_rss_bytes / 1e6 for cost in costs])
        yield Figure(f"{name}: peak memory", "MB", peaks, times, limit=limits[1])


def recording(runs: Sequence[RunFolder], folder: Path, pairs: int, batch: int) -> list[Figure]:
    """Measure `sync` of batches of runs, MLflow's calls alone with the same values, and `sync` of recorded runs.

    The first two run in turn.
    """
    ours = TrackingConfig(name="mlflow", uri=f"sqlite:///{folder}/ours.db")
    sync(runs[:1], ours)
    bare = _Bare(f"sqlite:///{folder}/bare.db", folder / "artifacts")
    seconds: dict[str, list[float]] = {"wall": [], "ours": [], "bare": []}
    for pair in range(1, pairs + 1):
        part = runs[pair * batch : (pair + 1) * batch]
        contents = [content for run in part if (content := read(run))]
        seconds["bare"].append(_cpu_s(partial(bare.record, contents)))
        start_s = time.perf_counter()
        seconds["ours"].append(_cpu_s(partial(sync, part, ours)))
        seconds["wall"].append((time.perf_counter() - start_s) / batch)
    there = runs[batch : (pairs + 1) * batch]
    again = [_cpu_s(lambda: sync(there, ours)) / len(there) for _ in range(pairs)]
    return [
        Figure("sync, a run", "s", interval(seconds["wall"]), pairs),
        Figure("MLflow's own calls, a run", "CPU-s", interval([value / batch for value in seconds["bare"]]), pairs),
        Figure("sync over MLflow's own calls", "x", paired_ratio(seconds["ours"], seconds["bare"]), pairs, limit=1.25),
        Figure("sync, a run that is there", "CPU-ms", interval([1e3 * value for value in again]), pairs, limit=1.0),
    ]


class _Bare:
    """A recorder that uses the fewest MLflow calls for a run: create it, log its values, end it, set its last tags.

    It records no files.
    """

    def __init__(self, uri: str, artifacts: Path) -> None:
        from mlflow import MlflowClient

        self._client = MlflowClient(uri)
        self._experiment = self._client.create_experiment("bare", str(artifacts))

    def record(self, contents: Sequence[RunContent]) -> None:
        from mlflow.entities import Metric, Param, RunTag

        for content in contents:
            run_id = self._client.create_run(self._experiment, 0, tags_of(content), content.name).info.run_id
            metrics = [Metric(point.name, point.value, point.at_ms, point.step) for point in content.points()]
            self._client.log_batch(run_id, metrics, [Param(name, value) for name, value in content.params.items()])
            self._client.set_terminated(run_id, status_of(content), 1)
            self._client.log_batch(run_id, tags=[RunTag("note", content.note), RunTag("digest", content.digest)])


def _cpu_s(work: Callable[[], object]) -> float:
    start_s = time.process_time()
    work()
    return time.process_time() - start_s
