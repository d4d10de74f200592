"""Which runs answer a line: those of its batch, or the largest batch that is known to fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llmexp.record.result import Metric, RunStatus
from llmexp.report.row import OOM
from llmexp.schema.section import MAX
from llmexp.training.report.batches import but_for_batch
from llmexp.training.report.memory_column import MEMORY_HEADERS
from llmexp.training.report.row import TrainingRow

EMULATED = "emulated"


@dataclass(frozen=True)
class Candidate:
    """A run with its samples a GPU; `open_end` says why a larger batch may fit, and is empty where none does."""

    row: TrainingRow
    batch: int
    open_end: str = ""

    @property
    def is_answer(self) -> bool:
        """Tell whether the run was measured or ran out of memory."""
        return bool(self.metric(self.row.plan.rate)) or self.row.state == OOM

    def metric(self, name: str) -> Metric | None:
        """Return a metric of a run that was measured, on a smaller memory than the device's too."""
        if self.row.state == EMULATED and self.row.result:
            return self.row.result.metrics.get(name)
        return self.row.metric(name)

    @property
    def memory(self) -> tuple[str, float] | None:
        """The name of the metric that gives the memory, and its bytes."""
        known = ((name, self.metric(name)) for name in MEMORY_HEADERS)
        return next(((name, metric.mean) for name, metric in known if metric), None)


def of_batch(rows: Sequence[TrainingRow], batch: int) -> list[Candidate]:
    """Return the runs with this number of samples a GPU."""
    return [Candidate(row, batch) for row in rows if row.plan.config.batch.micro == batch]


def of_largest(rows: Sequence[TrainingRow], sweep: str) -> list[Candidate]:
    """Return the largest batch of each configuration that was searched for, or of which several batches were run.

    A single batch that fits says nothing about larger ones, and counts in the sweep of the paper's table alone.
    """
    alike: dict[str, list[TrainingRow]] = {}
    for row in rows:
        alike.setdefault(but_for_batch(row), []).append(row)
    return [found for same in alike.values() for found in _largest(same, sweep)]


def _largest(rows: Sequence[TrainingRow], sweep: str) -> Iterator[Candidate]:
    searched = [row for row in rows if row.plan.config.batch.micro == MAX]
    yield from (Candidate(row, _found(row), _limit(row)) for row in searched)
    fixed = sorted((row for row in rows if row not in searched), key=_found)
    fits = [row for row in fixed if row.state in (RunStatus.SUCCESS, EMULATED)]
    if fits:
        over = [_found(row) for row in fixed if row.state == OOM and _found(row) > _found(fits[-1])]
        if over or len(fits) > 1 or fits[-1].plan.config.sweep.name == sweep:
            yield Candidate(fits[-1], _found(fits[-1]), _untried(_found(fits[-1]), over))
    elif fixed and (_is_too_large_with_one(fixed[0]) or fixed[0].plan.config.sweep.name == sweep):
        yield Candidate(fixed[0], _found(fixed[0]))


def _found(row: TrainingRow) -> int:
    """Return the samples a GPU that a run was measured with, or that were planned."""
    batch = row.result.batch if row.result else None
    return batch.micro if batch else row.batch.micro


def _is_too_large_with_one(row: TrainingRow) -> bool:
    return row.state == OOM and _found(row) == 1


def _limit(row: TrainingRow) -> str:
    largest = row.plan.config.batch.largest
    return f"the search ended at batch.largest={largest}" if largest and _found(row) >= largest else ""


def _untried(fits: int, over: Sequence[int]) -> str:
    """Say which batches between the largest that fitted and the next power of two were not tried."""
    if not over:
        return f"batch {fits} fits, and no larger one was tried"
    return f"batch {min(over)} does not fit, and nothing between was tried" if min(over) > 2 * fits else ""
