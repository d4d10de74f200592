"""The runs of a sweep, from plans to the report: one run's failure never stops the others, and the folders are the only memory."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from omegaconf import DictConfig

from llmexp.cli.compose import container_of
from llmexp.cli.jobs import Job, plan_of, words_of
from llmexp.cli.resolvers import register
from llmexp.cli.resume import why_again
from llmexp.cli.siblings import with_memory_of_siblings
from llmexp.cli.side_by_side import run_all, worth_it
from llmexp.errors import LlmexpError
from llmexp.plan.detect import detect
from llmexp.plan.run_plan import RunPlan
from llmexp.record.folder import RunFolder, write_atomically
from llmexp.schema import TrackingConfig


def run_sweep(jobs: Sequence[Job], launcher: Launcher) -> int:
    """Run all jobs through Hydra's launcher, print and write their report; 0 where every run answered its question, else 1.

    Raises ConfigError, before anything starts, where what they record cannot be kept.
    """
    check_store(jobs[0].plan)
    # By name, because Hydra loads its plugins a second time. Other launchers run jobs elsewhere, where this is asked again.
    here = type(launcher).__name__ == "BasicLauncher"
    if here and any(joined(job.plan) for job in jobs):
        return 0
    plans, devices = [job.plan for job in jobs], detect().device_ids
    print(announcement(plans), flush=True)
    together = here and worth_it(plans, devices)
    returned = run_all(plans, devices) if together else launcher.launch([job.overrides for job in jobs], initial_job_idx=0)
    folders = [folder_of(job.plan) for job in jobs]
    report(folders, jobs[0].plan.config.tracking)
    return 0 if all(answered(*pair) for pair in zip(folders, returned, strict=True)) else 1


def run_job(config: DictConfig) -> None:
    """Measure one composed run, or keep its earlier result: what Hydra's launcher calls, here or on another machine."""
    register()  # a launcher may have brought this to a process of its own
    try:
        hydra = HydraConfig.get()
        plan = plan_of(container_of(config), words_of(hydra, hydra.overrides.task))
        if not joined(plan):
            measure(plan, folder_of(plan))
    except LlmexpError as error:
        print(f"llmexp: {error}", file=sys.stderr)
        raise
    except Exception:  # the sweep's edge: said here, while it is fresh; Hydra keeps it and goes on with the next run
        traceback.print_exc()
        raise


def joined(plan: RunPlan) -> bool:
    """Whether this is another machine of the run than its first; then all that the first one asked of it has been done."""
    from llmexp.launch.join import join
    from llmexp.launch.place import place_of

    place = place_of(plan.config)
    if place.node:
        join(place)
    return place.node > 0


def measure(plan: RunPlan, folder: RunFolder) -> None:
    """Run a plan unless its folder already has the answer; either way the tracker has the folder afterwards."""
    from llmexp.launch.stack import stack_digest

    earlier, stack = folder.result(), stack_digest(plan)
    again = why_again(plan.config, earlier, stack) if earlier else None
    if earlier and not again:
        print(f"{folder.path.name}: {earlier.status} already, {earlier.ended_at}; rerun=all measures again", flush=True)
        _record(plan, folder)
        return
    if again:
        print(f"{folder.path.name}: again, {again}", flush=True)
    remeasure(with_memory_of_siblings(plan, folder, stack), folder)


def remeasure(plan: RunPlan, folder: RunFolder) -> None:
    """Run a plan whatever its folder holds, draw it and copy it to the tracker."""
    from llmexp.launch.run import run_one
    from llmexp.report.plots import can_draw, draw_run

    run_one(plan, folder)
    if can_draw():
        draw_run(folder)
    _record(plan, folder)


def check_store(plan: RunPlan) -> None:
    """Raise ConfigError where the plan's MLflow store is not safe."""
    tracking = plan.config.tracking
    if tracking.name == "mlflow":
        from llmexp.record import mlflow

        mlflow.check_store(tracking, Path(plan.config.sweep.outputs))


def _record(plan: RunPlan, folder: RunFolder) -> None:
    if plan.config.tracking.name == "mlflow":
        from llmexp.record.mlflow import record_runs

        record_runs([folder], plan.config.tracking)


def report(folders: Sequence[RunFolder], tracking: TrackingConfig) -> None:
    """Print the table of these runs and leave it beside them as Markdown, CSV and PNG."""
    from llmexp.report.plots import can_draw, draw
    from llmexp.report.table import build_report
    from llmexp.report.terminal import print_report
    from llmexp.report.text import comma_separated, markdown

    table = build_report(folders)
    print_report(table)
    root = folders[0].path.parent
    write_atomically(root / "report.md", markdown(table))
    write_atomically(root / "report.csv", comma_separated(table))
    left = [root / "report.md", root / "report.csv"]
    if can_draw():
        draw(table, root / "report.png")
        left.append(root / "report.png")
    else:
        print("no pictures: matplotlib is not installed here; where it is, llmexp report --figure FILE draws them from the folders")
    if tracking.name == "mlflow":
        from llmexp.record.mlflow import record_report

        if record_report(root.name, left, tracking, root.parent):
            print("Open the results in MLflow: llmexp ui (in a checkout: make ui)")


def folder_of(plan: RunPlan) -> RunFolder:
    """The run's folder below the sweep's."""
    sweep = plan.config.sweep
    return RunFolder(Path(sweep.outputs) / sweep.name / plan.folder_name)


def answered(folder: RunFolder, returned: JobReturn) -> bool:
    """Whether the job ended without an error of its own and its result answers the question."""
    result = folder.result() if returned.status is JobStatus.COMPLETED else None
    return result is not None and result.status.is_answer


def announcement(plans: Sequence[RunPlan]) -> str:
    """One line: what will run, where it goes."""
    work: dict[str, list[str]] = {}
    for plan in plans:
        where = f"{plan.config.model.name} on {plan.dims.world_size} x {plan.config.hardware.name}"
        work.setdefault(where, []).append(plan.method)
    parts = [f"{where}: {', '.join(methods)}" for where, methods in work.items()]
    return f"{len(plans)} run{'s' * (len(plans) > 1)} of {folder_of(plans[0]).path.parent} | {' | '.join(parts)}"
