"""Copies of runs to the trackers in their plans.

Only trackers known to be the user's own are trusted, because whoever made a folder could name any.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from llmexp.errors import RecordError
from llmexp.record.folder import RunFolder
from llmexp.record.plan import RunPlan
from llmexp.record.redact import redact
from llmexp.schema import TrackingConfig


def strangers(runs: Iterable[RunFolder]) -> dict[str, list[RunFolder]]:
    """Return the runs by their planned tracker, where it is not the one of this machine's environment."""
    own, found = os.environ.get("MLFLOW_TRACKING_URI"), dict[str, list[RunFolder]]()
    for run in runs:
        uri = planned_tracking(run).uri
        if uri and uri != own:
            found.setdefault(uri, []).append(run)
    return found


def refused(runs: Iterable[RunFolder]) -> str:
    """Say why some of these runs are not copied to their planned tracker and what to do; empty where all may be."""
    named = ", ".join(f"{len(those)} to {redact(uri)}" for uri, those in strangers(runs).items())
    todo = "`llmexp sync --yes` copies them there if you trust these trackers, `llmexp sync --uri URI` elsewhere"
    return f"only the runs' folders name these trackers ({named}): {todo}" if named else ""


def copy_runs(runs: Sequence[RunFolder], chosen: Mapping[str, str]) -> bool:
    """Copy runs to MLflow with their sweeps' reports, and say how many; returns False where one cannot be read.

    The settings in `chosen` replace those that a run was planned with.
    """
    from llmexp.record.mlflow import lacks_report, sync
    from llmexp.sweep.report import leave_report

    by_tracker: dict[TrackingConfig, list[RunFolder]] = {}
    for run in runs:
        by_tracker.setdefault(
            planned_tracking(run).model_copy(update={"name": "mlflow", "also": (), **chosen}), []
        ).append(run)
    summaries = []
    for tracking, those in by_tracker.items():
        summaries.append(summary := sync(those, tracking))
        print(summary, *summary.unreadable, sep="\n")
        for sweep in dict.fromkeys(run.path.parent for run in those):
            if summary.written or lacks_report(sweep.name, tracking, sweep.parent):
                leave_report(sweep, tracking)
    return not any(summary.unreadable for summary in summaries)


def copy_also(runs: Sequence[RunFolder], only: Sequence[str] | None, experiment: str | None) -> bool:
    """Copy runs to the trackers beside MLflow, and say how many; returns False where one was not copied.

    Each run goes to those that it was planned with, or all go to `only` these. One that fails is told in a line.

    Raises ConfigError, before anything is copied, where one of them does not work here.
    """
    from llmexp.record.trackers import check_trackers

    by_tracker: dict[tuple[str, str, Path], list[RunFolder]] = {}
    for run in runs:
        planned = planned_tracking(run)
        for name in dict.fromkeys(planned.also if only is None else only):
            key = (name, experiment or planned.experiment, run.path.parent.parent)
            by_tracker.setdefault(key, []).append(run)
    check_trackers([name for name, *_ in by_tracker])
    copied = [_copied(those, name, project) for (name, project, _), those in by_tracker.items()]
    return all(copied)


def _copied(runs: Sequence[RunFolder], name: str, project: str) -> bool:
    from llmexp.record.trackers import sync_also

    try:
        summary = sync_also(runs, name, project)
    except RecordError as error:
        print(f"llmexp: not copied to {name}: {error}", file=sys.stderr)
        return False
    print(f"{name}: {summary}", *summary.unreadable, sep="\n")
    return not summary.unreadable


def copy_missing(runs: Sequence[RunFolder]) -> None:
    """Copy runs that were to be tracked before somebody looks at them.

    A failure is reported in one line and raises nothing.
    """
    elsewhere = {run.path for those in strangers(runs).values() for run in those}
    tracked = [run for run in runs if planned_tracking(run).name == "mlflow" and run.path not in elsewhere]
    if elsewhere:
        print(f"llmexp: not copied to MLflow: {refused(runs)}", file=sys.stderr)
    try:
        if tracked:
            copy_runs(tracked, {})
    except RecordError as error:
        print(f"llmexp: not copied to MLflow: {error}", file=sys.stderr)


def planned_tracking(run: RunFolder) -> TrackingConfig:
    """Return where the run was meant to be recorded, or the default for a plan of another version."""
    try:
        return RunPlan.read(run.plan_path).config.tracking
    except (OSError, RecordError):
        return TrackingConfig(name="mlflow")
