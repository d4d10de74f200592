"""The runs of a sweep, from plans to the report: one run's failure never stops the others, and the folders are the only memory."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from omegaconf import DictConfig

from llmexp.cli.budget import left_out_line, within_budget
from llmexp.cli.compose import container_of
from llmexp.cli.cost import cost_line, costs_of
from llmexp.cli.jobs import Job, plan_of, words_of
from llmexp.cli.resolvers import register
from llmexp.cli.resume import is_anothers, restored_plan, why_run
from llmexp.cli.share import HELD, settle
from llmexp.cli.side_by_side import run_all, worth_it
from llmexp.cli.sweep_report import report
from llmexp.errors import ConfigError, LlmexpError, RecordError
from llmexp.plan.detect import detect
from llmexp.record.filesystem import nearest_existing
from llmexp.record.folder import RunFolder
from llmexp.record.plan import RunPlan
from llmexp.tasks import get_task


@runtime_checkable
class JobLauncher(Protocol):
    """A launcher that takes planned jobs, where Hydra's others compose each again."""

    def launch_jobs(self, jobs: Sequence[Job]) -> Sequence[JobReturn] | None:
        """Run the jobs and answer for each; None where they go on without this process."""


def run_sweep(jobs: Sequence[Job], launcher: Launcher) -> int:
    """Run all jobs through Hydra's launcher, print and write their report; 0 where every run answered its question, else 1.

    Raises ConfigError, before anything starts, where what they record cannot be kept or the budget does not suffice.
    """
    check_store(jobs[0].plan)
    # By name, because Hydra loads its plugins a second time. Other launchers run jobs elsewhere, where this is asked again.
    here = type(launcher).__name__ == "BasicLauncher"
    if here and any(joined(job.plan) for job in jobs):
        return 0
    jobs = affordable(jobs)
    plans, devices = [job.plan for job in jobs], detect().device_ids
    together = here and worth_it(plans, devices)
    if here:
        basic: Any = launcher
        basic.task_function = partial(basic.task_function, labels={plan.id: plan.label for plan in plans})
    folders = [folder_of(plan) for plan in plans]

    def launch(places: Sequence[int]) -> Sequence[JobReturn]:
        return launcher.launch([jobs[place].overrides for place in places], initial_job_idx=0)

    if isinstance(launcher, JobLauncher):
        submitted = launcher.launch_jobs(jobs)
        if submitted is None:
            return 0
        returned = list(submitted)
    else:
        returned = settle(folders, run_all(plans, devices) if together else launch(range(len(jobs))), launch)
    report(folders, jobs[0].plan.config.tracking)
    return 0 if all(answered(*pair) for pair in zip(folders, returned, strict=True)) else 1


def run_job(config: DictConfig, began: str, labels: Mapping[str, str] | None = None) -> str | None:
    """Measure one composed run, or keep its result: what Hydra's launcher calls, here or on another machine; HELD where another driver is at it.

    `began` is when the sweep did, in ISO 8601: what other drivers measure after that is not measured again.
    `labels`: of each run of the sweep, by its id, the words that tell it from the others.
    """
    register()  # a launcher may have brought this to a process of its own
    try:
        hydra = HydraConfig.get()
        words = words_of(GlobalHydra.instance().config_loader(), hydra, hydra.overrides.task)
        plan = plan_of(container_of(config), words)
        plan = plan.model_copy(update={"label": (labels or {}).get(plan.id, "")})
        return None if joined(plan) or measure(plan, folder_of(plan), began) else HELD
    except LlmexpError as error:
        print(f"llmexp: {error}", file=sys.stderr)
        raise
    except Exception:  # the sweep's edge: said here, while it is fresh; Hydra keeps it and goes on with the next run
        traceback.print_exc()
        raise


def joined(plan: RunPlan) -> bool:
    """Whether this is another machine of the run than its first; then all that the first one asked of it has been done."""
    from llmexp.launch.nodes.join import join
    from llmexp.launch.nodes.place import place_of

    place = place_of(plan.config)
    if place.node:
        join(place, folder_of(plan).path.parent)
    return place.node > 0


def measure(plan: RunPlan, folder: RunFolder, began: str | None = None) -> bool:
    """Run a plan unless its folder has the answer; the tracker has the folder afterwards. False where another driver is at the run.

    Raises RecordError where the folder cannot be read or written: the disk is full, read-only or gone.
    """
    try:
        return _measure(plan, folder, began)
    except OSError as error:
        raise RecordError(f"{folder.path.name}: {error}; the same command goes on with it") from error


def _measure(plan: RunPlan, folder: RunFolder, began: str | None) -> bool:
    from llmexp.launch.attempt import RunHeldError
    from llmexp.launch.stack import stack_digest

    stack = stack_digest(plan)

    def wanted() -> bool:
        why = why_run(plan, folder, stack, began)
        if why:
            print(f"{folder.path.name}: again, {why}", flush=True)
        return why is not None

    if why_run(plan, folder, stack, began) is not None:
        try:
            foretold = plan.skip or get_task(plan.config.task.name).foretold(plan, folder.path.parent, stack)
            return remeasure(plan.model_copy(update={"skip": foretold}), folder, wanted) or _keep(plan, folder, began)
        except RunHeldError as held:
            print(f"{folder.path.name}: {held}", flush=True)
            return False
    return _keep(plan, folder, began)


def remeasure(plan: RunPlan, folder: RunFolder, wanted: Callable[[], bool] = lambda: True) -> bool:
    """Run a plan whatever its folder holds, draw it and copy it to the tracker; False where `wanted`, asked once it holds the folder, says no."""
    from llmexp.launch.run import run_one
    from llmexp.report.plots import can_draw, draw_run

    if run_one(plan, folder, wanted) is None:
        return False
    if can_draw():
        draw_run(folder)
    record(plan, folder)
    return True


def _keep(plan: RunPlan, folder: RunFolder, began: str | None) -> bool:
    """Say that the result stands, and why."""
    result = folder.result()
    if result:
        why = "by another driver of this sweep" if is_anothers(result, began) else f"stack {result.stack}; rerun=all measures again"
        print(f"{folder.path.name}: {result.status} already, {result.ended_at}, {why}{restored_plan(plan, folder, result)}", flush=True)
    record(plan, folder)
    return True


def check_store(plan: RunPlan) -> None:
    """Raise ConfigError where sweep.outputs can be no folder that is written to, or the plan's MLflow store is not safe."""
    tracking, outputs = plan.config.tracking, Path(plan.config.sweep.outputs)
    if not nearest_existing(outputs).is_dir():
        raise ConfigError(f"sweep.outputs={outputs}: {nearest_existing(outputs)} is a file; name a folder")
    if not os.access(nearest_existing(outputs), os.W_OK):
        raise ConfigError(f"sweep.outputs={outputs}: {nearest_existing(outputs)} cannot be written to; name another folder")
    if tracking.name == "mlflow":
        from llmexp.record import mlflow

        mlflow.check_store(tracking, outputs)


def record(plan: RunPlan, folder: RunFolder) -> None:
    """Copy a run to its tracker; what is there already is left alone."""
    if plan.config.tracking.name == "mlflow":
        from llmexp.record.mlflow import record_runs

        record_runs([folder], plan.config.tracking)


def folder_of(plan: RunPlan) -> RunFolder:
    """The run's folder below the sweep's."""
    return RunFolder(plan.folder)


def answered(folder: RunFolder, returned: JobReturn) -> bool:
    """Whether the job ended without an error of its own and its result answers the question."""
    try:
        result = folder.result() if returned.status is JobStatus.COMPLETED else None
    except RecordError:
        return False
    return result is not None and result.status.is_answer


def affordable(jobs: Sequence[Job]) -> list[Job]:
    """Announce the sweep and its cost, and give the runs that its budget allows; raises ConfigError where that refuses."""
    plans = [job.plan for job in jobs]
    costs = costs_of(plans, [folder_of(plan) for plan in plans])
    allowed = within_budget(costs, plans[0].config.budget)
    kept = list(compress(jobs, allowed))
    warnings = dict.fromkeys(get_task(job.plan.config.task.name).warning(job.plan) for job in kept)
    lines = (announcement([job.plan for job in kept]), *warnings, cost_line(list(compress(costs, allowed))), left_out_line(costs, allowed))
    print(*filter(None, lines), sep="\n", flush=True)
    return kept


def announcement(plans: Sequence[RunPlan]) -> str:
    """One line: what will run, where it goes."""
    work: dict[str, list[str]] = {}
    for plan in plans:
        first, *rest = plan.subject.values()
        where = f"{first} on {plan.devices} x {plan.config.hardware.name}"
        work.setdefault(where, []).append(" ".join(rest) + " (control)" * plan.config.control)
    parts = [f"{where}: {', '.join(filter(None, compared))}".removesuffix(": ") for where, compared in work.items()]
    return f"{len(plans)} run{'s' * (len(plans) > 1)} of {plans[0].folder.parent} | {' | '.join(parts)}"
