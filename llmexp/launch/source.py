"""The run that another one starts from by model=@NAME: whether its model is there, and whether that has changed.

A result holds as long as the weights are those that its run found at its start. Weights count, not the result of the
run that made them: one that is measured again and makes the same weights makes nothing stale.
"""

from __future__ import annotations

from pathlib import Path

from llmexp.errors import ConfigError, RecordError
from llmexp.inputs.checkpoint import Checkpoint
from llmexp.record.folder import RunFolder
from llmexp.record.plan import RunPlan
from llmexp.record.result import RunResult, RunStatus
from llmexp.record.skip import Skip, SkipCode
from llmexp.registry import get_task
from llmexp.schema import HfModel
from llmexp.schema.model import RUN


def missing_model(plan: RunPlan) -> Skip | None:
    """Say why the run that this one starts from left no model; None where it did, or nothing is needed."""
    model = plan.config.starts_from
    if model is None:
        return None
    why = _why_missing(model)
    return Skip(code=SkipCode.SOURCE, reason=f"model={RUN}{model.name}: {why}") if why else None


def with_source(plan: RunPlan) -> RunPlan:
    """Return the plan with the digest of the weights that it starts from; the same where it needs no other run.

    Raises ConfigError where they cannot be read.
    """
    model = plan.config.starts_from
    return plan.model_copy(update={"started_from": _checkpoint(model).digest}) if model else plan


def other_source(plan: RunPlan, earlier: RunResult) -> str | None:
    """Say why an earlier result no longer answers for what the run starts from now, or None."""
    model = plan.config.starts_from
    if model is None:
        return None
    missing = missing_model(plan)
    if earlier.skip is SkipCode.SOURCE:
        if missing:
            return None if missing.reason == earlier.reason else missing.reason
        return f"model={RUN}{model.name} is there now"
    if earlier.status is RunStatus.SKIPPED or missing or _checkpoint(model).digest == earlier.started_from:
        return None
    return f"model={RUN}{model.name} has other weights now"


def lost_model(plan: RunPlan, folder: RunFolder) -> str | None:
    """Say that the model of a run from which others start is gone, or None."""
    made = get_task(plan.config.task.name).made_model(plan) if plan.awaited else None
    if made is None or (folder.path / made.folder).is_dir():
        return None
    return f"its {made.folder} is gone, from which other runs start"


def _why_missing(model: HfModel) -> str | None:
    folder = _maker(model)
    try:
        result = folder.result()
        if result is None:
            return f"{folder.path} has no result, it is {folder.state()}"
        if result.status is not RunStatus.SUCCESS:
            return f"{folder.path} ended {result.status}{f': {result.reason}' if result.reason else ''}"
        _checkpoint(model)
    except (ConfigError, RecordError) as error:
        return str(error)
    return None


def _maker(model: HfModel) -> RunFolder:
    assert model.made
    return RunFolder(Path(model.path).parents[len(Path(model.made.folder).parts) - 1])


def _checkpoint(model: HfModel) -> Checkpoint:
    return Checkpoint.read(Path(model.path))
