"""Runs to the trackers that they were planned with."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from llmexp.errors import RecordError
from llmexp.plan.run_plan import RunPlan
from llmexp.record.folder import RunFolder
from llmexp.schema import TrackingConfig


def copy_runs(runs: Sequence[RunFolder], chosen: Mapping[str, str]) -> bool:
    """Copy runs to MLflow and say how many; `chosen` goes before what each was planned with. False where one cannot be read."""
    from llmexp.record.mlflow import sync

    by_tracker: dict[TrackingConfig, list[RunFolder]] = {}
    for run in runs:
        by_tracker.setdefault(planned_tracking(run).model_copy(update={"name": "mlflow", **chosen}), []).append(run)
    summaries = [sync(those, tracking) for tracking, those in by_tracker.items()]
    for summary in summaries:
        print(summary, *summary.unreadable, sep="\n")
    return not any(summary.unreadable for summary in summaries)


def copy_missing(runs: Sequence[RunFolder]) -> None:
    """Before they are looked at: copy runs that were to be tracked, and go on where that fails, with a line that says so."""
    tracked = [run for run in runs if planned_tracking(run).name == "mlflow"]
    try:
        if tracked:
            copy_runs(tracked, {})
    except RecordError as error:
        print(f"llmexp: not copied to MLflow: {error}", file=sys.stderr)


def planned_tracking(run: RunFolder) -> TrackingConfig:
    """Where the run was meant to be recorded; the default for a plan of another version."""
    try:
        return RunPlan.read(run.plan_path).config.tracking
    except (OSError, RecordError):
        return TrackingConfig(name="mlflow")
