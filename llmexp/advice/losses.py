"""What runs of the outputs folder learned by the same tokens, by what they changed in the mathematics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import Any

from llmexp.errors import RecordError
from llmexp.record.digits import rounded
from llmexp.record.folder import find_runs
from llmexp.record.plan import RunPlan
from llmexp.record.result import RunStatus
from llmexp.registry import get_task

_LOSS, _TOKENS = "smoothed_final_loss", "trained_tokens"
Changes = tuple[str, ...]


def losses_known(outputs: Path, like: RunPlan) -> list[str]:
    """Return a line for each number of tokens that plain runs and others of the same model and data were trained on."""
    by_tokens: dict[float, dict[Changes, list[float]]] = defaultdict(lambda: defaultdict(list))
    for tokens, changes, loss in _trained(outputs, like):
        by_tokens[tokens][changes].append(loss)
    return [_line(tokens, losses) for tokens, losses in sorted(by_tokens.items()) if () in losses and len(losses) > 1]


def _trained(outputs: Path, like: RunPlan) -> Iterator[tuple[float, Changes, float]]:
    """Yield tokens, changes and loss of runs with a token budget."""
    for run in find_runs(outputs):
        with suppress(RecordError):
            result = run.result()
            loss, tokens = (result.metrics.get(name) if result else None for name in (_LOSS, _TOKENS))
            if result is None or result.status != RunStatus.SUCCESS or not loss or not tokens:
                continue
            plan = RunPlan.read(run.plan_path)
            if _learned(plan) == _learned(like):
                yield tokens.mean, tuple(get_task(plan.config.task.name).changes_mathematics(plan)), loss.mean


def _learned(plan: RunPlan) -> dict[str, Any]:
    """Return what is learned: the task, the model and the data."""
    return plan.config.model_dump(include={"task", "model", "data"})


def _line(tokens: float, losses: dict[Changes, list[float]]) -> str:
    said = [f"{', '.join(changes) or 'plain'} {rounded(fmean(found), 4)}" for changes, found in sorted(losses.items())]
    return f"loss after {rounded(tokens)} tokens in earlier runs: {'; '.join(said)}"
