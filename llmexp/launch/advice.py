"""Advice on what a user can do about a bad ending, where that is known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from llmexp.launch.ending import Ending
from llmexp.launch.no_steps_hint import no_steps_hint
from llmexp.record.plan import RunPlan
from llmexp.record.printed import Logs
from llmexp.record.result import RunStatus
from llmexp.registry import get_engine


def advised(plan: RunPlan, repeat: Path, ending: Ending) -> Ending:
    """Return the ending with the advice appended to its reason."""
    advice = ""
    if ending.status is RunStatus.FAILED:
        advice = get_engine(plan.config.task.name, plan.config.engine.name).advice(plan.config, ending.reason)
    elif ending.status is RunStatus.TIMEOUT and not _has_steps(repeat):
        told = no_steps_hint(plan, Logs(repeat).read())
        advice = f"no step was heard of: {told}" if told else ""
    return replace(ending, reason=f"{ending.reason}; {advice}") if advice else ending


def _has_steps(repeat: Path) -> bool:
    return any(path.stat().st_size for path in repeat.glob("samples.*.jsonl"))
