"""Run a whole sweep: check it, announce it, measure it and report it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from itertools import compress
from pathlib import Path

from llmexp.errors import ConfigError, LlmexpError, RecordError
from llmexp.machine.accelerators.here import undriven
from llmexp.record.filesystem import nearest_existing
from llmexp.record.folder import RunFolder
from llmexp.record.plan import RunPlan
from llmexp.record.sweep_order import note_order
from llmexp.registry import get_task
from llmexp.sweep.budget import left_out_line, within_budget
from llmexp.sweep.cost import cost_line, costs_of
from llmexp.sweep.measuring import folder_of
from llmexp.sweep.pilot import piloted
from llmexp.sweep.report import print_so_far, report
from llmexp.sweep.runner import Runner


def run_sweep(plans: Sequence[RunPlan], runner: Runner) -> int:
    """Let the runner measure all plans, print and write their report; return 0 where every run has an answer, else 1.

    Raises ConfigError, before anything starts, where the records cannot be kept or the budget is too small.
    """
    check_store(plans[0])
    plans = affordable(plans, pilots=runner.measures_here)
    folders = [folder_of(plan) for plan in plans]
    note_order(folders)
    try:
        well = runner.run(plans)
    except KeyboardInterrupt:
        print_so_far([folder for folder in folders if _has_answer(folder)])
        raise
    if well is None:
        return 0
    learn(plans, folders)
    report(folders, plans[0].config.tracking)
    return 0 if all(well) and all(map(_has_answer, folders)) else 1


def learn(plans: Sequence[RunPlan], folders: Sequence[RunFolder]) -> None:
    """Let each task take notice of its runs; that must not cost the report."""
    tasks = [plan.config.task.name for plan in plans]
    for task in dict.fromkeys(tasks):
        own = [folder for folder, of in zip(folders, tasks, strict=True) if of == task]
        with suppress(OSError, LlmexpError):
            get_task(task).learn(Path(plans[0].config.sweep.outputs), own)


def check_store(plan: RunPlan) -> None:
    """Raise ConfigError where sweep.outputs cannot be a writable folder, or a tracker of the plan does not work."""
    tracking, outputs = plan.config.tracking, Path(plan.config.sweep.outputs)
    if not nearest_existing(outputs).is_dir():
        raise ConfigError(f"sweep.outputs={outputs}: {nearest_existing(outputs)} is a file; name a folder")
    if not os.access(nearest_existing(outputs), os.W_OK):
        raise ConfigError(
            f"sweep.outputs={outputs}: {nearest_existing(outputs)} cannot be written to; name another folder"
        )
    if tracking.name == "mlflow":
        from llmexp.record import mlflow

        mlflow.check_store(tracking, outputs)
    if tracking.also:
        from llmexp.record.trackers import check_trackers

        check_trackers(tracking.also)


def _has_answer(folder: RunFolder) -> bool:
    try:
        result = folder.result()
    except RecordError:
        return False
    return result is not None and result.status.is_answer


def affordable(plans: Sequence[RunPlan], *, pilots: bool = False) -> list[RunPlan]:
    """Announce the sweep and its cost, and return the runs that its budget allows.

    With `pilots`, a few steps or requests are measured first where the cost of a long sweep is unknown.

    Raises ConfigError where the budget refuses the sweep.
    """
    costs = costs_of(plans, [folder_of(plan) for plan in plans])
    if pilots:
        costs = piloted(costs)
    allowed = within_budget(costs, plans[0].config.budget)
    kept = list(compress(plans, allowed))
    warnings = dict.fromkeys(get_task(plan.config.task.name).warning(plan) for plan in kept)
    lines = (
        announcement(kept),
        undriven_cards(kept),
        *warnings,
        cost_line(list(compress(costs, allowed))),
        left_out_line(costs, allowed),
    )
    print(*filter(None, lines), sep="\n", flush=True)
    return kept


def undriven_cards(plans: Sequence[RunPlan]) -> str:
    """Say which cards of this machine have no driver, where a run would take the CPU instead; "" elsewhere."""
    return undriven() if any(plan.config.hardware.device == "cpu" for plan in plans) else ""


def announcement(plans: Sequence[RunPlan]) -> str:
    """Say in one line what will run, and where its results go."""
    work: dict[str, list[str]] = {}
    for plan in plans:
        first, *rest = plan.name_fields.values()
        where = f"{first} on {plan.devices} x {plan.config.hardware.name}"
        work.setdefault(where, []).append(" ".join(rest) + " (control)" * plan.config.control)
    parts = [f"{where}: {', '.join(filter(None, compared))}".removesuffix(": ") for where, compared in work.items()]
    return f"{len(plans)} run{'s' * (len(plans) > 1)} of {plans[0].folder.parent} | {' | '.join(parts)}"
