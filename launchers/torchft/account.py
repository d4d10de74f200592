"""Sums up a run whose replicas were killed: the time of all steps, and what the failures cost.

Of each step the first time counts that it was committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, median

from llmexp.launchers.torchft.lives import RECOVERY, StepRecord, read_steps
from llmexp.record.result import to_json
from llmexp.record.samples import Failure, RankFailure, Recovery, TrainingSummary
from llmexp.record.writing import write_atomically
from llmexp.training.plan.training_plan import TrainingPlan

Committed = dict[int, StepRecord]
"""The record of a step that counts, by replica; those that had no part are missing."""


def settle(plan: TrainingPlan, folder: Path) -> int:
    """Write summaries of all replicas that hold for all of their lives; return the exit code.

    Replicas whose weights differ in the end are a failure of rank 0.
    """
    ranks = range(plan.dims.dp)
    summaries = [TrainingSummary.model_validate_json((folder / f"rank.{rank}.json").read_text()) for rank in ranks]
    digests = {str(summary.what_ran.get("state_digest")) for summary in summaries}
    if len(digests) > 1:
        differ = RankFailure(rank=0, kind="error", message="the replicas ended with different weights or moments")
        write_atomically(folder / "failure.0.json", to_json(differ))
        return 1
    run = KilledRun(plan, [read_steps(folder, rank) for rank in ranks])
    recovery = run.recovery()
    for rank, summary in enumerate(summaries):
        whole = {"window_wall_s": run.window_s, "recovery": recovery}
        write_atomically(folder / f"rank.{rank}.json", to_json(summary.model_copy(update=whole)))
    return 0


class KilledRun:
    """The steps of all lives of all replicas."""

    def __init__(self, plan: TrainingPlan, records: Sequence[Sequence[StepRecord]]) -> None:
        self._kind = plan.engine_config[RECOVERY]
        self._size, self._records = len(records), records
        self._first = plan.config.measure.warmup_steps
        self._last = self._first + plan.config.measure.steps
        self._committed = [self._first_commit(step) for step in range(self._last)]
        self._begun_s = min(record.began_s for record in self._all() if record.step == self._first)
        self._ended_s = _ended_s(self._committed[-1])

    @property
    def window_s(self) -> float:
        """The wall time from the first begin of the first measured step to the last end of the last one."""
        return self._ended_s - self._begun_s

    def recovery(self) -> Recovery:
        """Return what the failures cost."""
        step_s = median(
            max(_end_s(record) - record.began_s for record in of_step.values())
            for of_step in self._committed[self._first :]
            if len(of_step) == self._size
        )
        inside = [record for record in self._all() if self._begun_s <= record.began_s < self._ended_s]
        return Recovery(
            kind=self._kind,
            failures=list(self._failures(step_s)),
            healed=sum(record.healed for record in inside),
            redone_steps=sum(self._times_begun(step) - 1 for step in range(self._first, self._last)),
            checkpoints=sum(record.checkpoint for record in inside),
            undisturbed_step_s=step_s,
            mean_replicas=fmean(len(of_step) for of_step in self._committed[self._first :]),
        )

    def _failures(self, step_s: float) -> Iterator[Failure]:
        """Yield each death with what it cost until training was as before, or the next death came."""
        deaths = [(record, rank) for rank, of_rank in enumerate(self._records) for record in of_rank if _died(record)]
        deaths = sorted((death for death in deaths if death[0].began_s < self._ended_s), key=lambda d: d[0].began_s)
        nexts = [*((death.step, death.began_s) for death, _ in deaths), (self._last, self._ended_s)][1:]
        for (death, rank), (next_step, next_s) in zip(deaths, nexts, strict=False):
            whole_s = min(self._whole_again(death, next_step), default=None)
            until_s = whole_s or next_s
            trained = sum(
                len(of_step) / self._size for of_step in self._committed[death.step :] if _ended_s(of_step) <= until_s
            )
            lost_s = until_s - death.began_s - trained * step_s
            yield Failure(step=death.step, replica=rank, lost_s=lost_s, recovered=whole_s is not None)

    def _whole_again(self, death: StepRecord, next_step: int) -> Iterator[float]:
        """Yield the ends of steps of all replicas after a death, from its step to that of the next one.

        Replicas end a step at different moments, so the next death may begin before the slowest of them has.
        """
        for of_step in self._committed[death.step : next_step]:
            if len(of_step) == self._size and _ended_s(of_step) > death.began_s:
                yield _ended_s(of_step)

    def _first_commit(self, step: int) -> Committed:
        """Return the records of those that trained the step, of the first time that it was committed."""
        return {
            rank: found
            for rank, of_rank in enumerate(self._records)
            if (found := next((record for record in of_rank if record.step == step and record.sample), None))
        }

    def _times_begun(self, step: int) -> int:
        return max(sum(record.step == step and not record.healed for record in of_rank) for of_rank in self._records)

    def _all(self) -> Iterator[StepRecord]:
        return (record for of_rank in self._records for record in of_rank)


def _died(record: StepRecord) -> bool:
    return record.ended_s is None


def _ended_s(of_step: Committed) -> float:
    return max(map(_end_s, of_step.values()))


def _end_s(record: StepRecord) -> float:
    assert record.ended_s
    return record.ended_s
