"""The conditions that must hold after a fault, and once the sweep is complete.

Each check yields a text for everything that is broken.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Hashable, Iterator
from pathlib import Path
from typing import Any

from chaos.surroundings import Surroundings
from llmexp.record.folder import RunFolder, find_runs
from llmexp.record.plan import RunPlan
from llmexp.record.result import RunStatus
from llmexp.record.samples import StepSample, read_samples
from llmexp.record.trackers.content import read
from llmexp.registry import get_task

COLUMNS = re.compile(r"  +")
ANSWERED = [status.value for status in RunStatus if status.is_answer]
MLFLOW_STATUS = {RunStatus.SUCCESS: "FINISHED", RunStatus.OOM: "FINISHED"}


def status_is_true(
    surroundings: Surroundings, sweep: Path, under_way: Callable[[], Collection[Hashable]]
) -> Iterator[str]:
    """Check that `llmexp status` says 'running' of at most as many runs as there are living drivers.

    It must also say 'success' of no run that lacks samples. `under_way` is asked before and after, because a run's
    driver may begin or end meanwhile.
    """
    if not (sweep.exists() and find_runs(sweep)):
        return
    before, drivers = answers(sweep), set(under_way())
    done = surroundings.run("status", str(sweep))
    if done.returncode or "Traceback" in done.stderr:
        yield f"status ended with {done.returncode}: {done.stderr.strip().splitlines()[-1:]}"
        return
    states = dict(COLUMNS.split(line)[:2] for line in done.stdout.splitlines()[1:] if "/" in line.split(" ")[0])
    drivers |= set(under_way())
    if list(states.values()).count("running") > len(drivers):
        yield f"status says that runs go on, with {len(drivers)} drivers alive: {states}"
    for name, state in states.items():
        if state == "success":
            run = name.partition("/")[2]
            broken = list(_is_whole(RunFolder(sweep / run)))
            # A living driver may have set the run aside since then, to measure it again.
            yield from broken if run in before and answers(sweep).get(run) == before[run] else ()
        elif state == "unreadable":
            yield f"{name} is unreadable"


def _is_whole(folder: RunFolder) -> Iterator[str]:
    plan = RunPlan.read(folder.plan_path)
    repeats = folder.repeats()
    if len(repeats) != plan.config.measure.repeats:
        yield f"{folder.path.name} is a success with {len(repeats)} repeats"
    for repeat in repeats:
        for rank in range(plan.processes):
            path = repeat / f"samples.{rank}.jsonl"
            # A request of another load has the same index.
            samples = read_samples(path, get_task(plan.config.task.name).sample_type) if path.exists() else []
            found = len({(getattr(sample, "point", 0), sample.index) for sample in samples})
            if not found == len(samples) == plan.samples or not (repeat / f"rank.{rank}.json").exists():
                yield (
                    f"{folder.path.name} is a success, but rank {rank} has {len(samples)} of {plan.samples} "
                    f"{plan.sample_name}s in {repeat.name}"
                )


def is_answered(sweep: Path, runs: int, out_of_memory: int) -> Iterator[str]:
    """Check that every run has its answer, and that at most `out_of_memory` are out of memory."""
    states = [folder.state() for folder in find_runs(sweep)]
    if len(states) != runs or any(state not in ANSWERED for state in states):
        yield f"the sweep is not complete after its resume: {states}"
    if states.count("oom") > out_of_memory:
        yield f"{states.count('oom')} runs are out of memory, the suite made {out_of_memory}"


def answers(sweep: Path) -> dict[str, str]:
    """Return the time at which each run with an answer got it."""
    if not sweep.exists():
        return {}
    found = ((folder.path.name, folder.result()) for folder in find_runs(sweep))
    return {name: result.ended_at for name, result in found if result and result.status.is_answer}


def store_equals_folders(uri: str, experiment: str, sweep: Path) -> Iterator[str]:
    """Check that MLflow has each run once below its sweep, with status, parameters, metrics and all steps.

    No run may be left running.
    """
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    found = client.get_experiment_by_name(experiment)
    recorded = list(client.search_runs([found.experiment_id], max_results=1000)) if found else []
    yield from (f"MLflow has {run.info.run_name} as RUNNING" for run in recorded if run.info.status == "RUNNING")
    by_kind = {kind: [run for run in recorded if run.data.tags.get("llmexp.kind") == kind] for kind in ("run", "sweep")}
    if len(by_kind["sweep"]) != 1:
        yield f"MLflow has {len(by_kind['sweep'])} parents of the sweep"
    names = sorted(run.data.tags["folder"] for run in by_kind["run"])
    folders = find_runs(sweep)
    if names != sorted(folder.path.name for folder in folders):
        yield f"MLflow has {names}, the sweep {[folder.path.name for folder in folders]}"
        return
    for run in by_kind["run"]:
        if run.data.tags["mlflow.parentRunId"] not in [parent.info.run_id for parent in by_kind["sweep"]]:
            yield f"{run.info.run_name} is below no sweep in MLflow"
        yield from _is_the_same(client, run, RunFolder(sweep / run.data.tags["folder"]))


def _is_the_same(client: Any, run: Any, folder: RunFolder) -> Iterator[str]:
    result = folder.result()
    if result is None:
        yield f"{folder.path.name} has no result"
        return
    if (run.info.status, run.data.tags["status"]) != (MLFLOW_STATUS[result.status], result.status.value):
        yield f"{folder.path.name} is {result.status}, in MLflow {run.info.status} and {run.data.tags['status']}"
    metrics = {name: metric.mean for name, metric in result.metrics.items() if metric}
    content = read(folder)
    for kind, here, there in (
        ("metrics", metrics, run.data.metrics),
        ("parameters", content.params if content else {}, run.data.params),
    ):
        other = {name: (value, there.get(name)) for name, value in here.items() if there.get(name) != value}
        if other:
            yield f"{folder.path.name}: {kind} that differ in MLflow: {other}"
    if result.task == "serve" or result.status is not RunStatus.SUCCESS:  # its samples are no curve
        return
    for repeat in folder.repeats():
        samples = read_samples(repeat / "samples.0.jsonl", StepSample)
        measured = max(index for index, sample in enumerate(samples) if not sample.warmup)
        losses = [sample.loss for sample in samples[: measured + 1]]  # later steps were profiled
        recorded = [
            metric.value
            for metric in sorted(
                client.get_metric_history(run.info.run_id, f"{repeat.name}/loss"), key=lambda one: one.step
            )
        ]
        if recorded != losses:
            yield f"{folder.path.name}: {len(recorded)} losses in MLflow, {len(losses)} in {repeat.name}"
