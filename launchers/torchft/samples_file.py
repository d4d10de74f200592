"""The samples of a replica that dies and comes back: a line for each step, in order, whoever trained it.

Lines are only appended, because others read them meanwhile. A step's line is of the first time that it was committed;
when it is done again, nothing is written. A step that the replica missed has the time and the loss of those that
trained it, and no positions.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean
from types import TracebackType

from llmexp.launchers.rank.frame import Rank
from llmexp.launchers.torchft.lives import cut_last_line
from llmexp.record.samples import StepSample, read_samples

_NOTHING = dict.fromkeys(("positions", "real_tokens", "samples", "record_squares", "bounded_squares"), 0)


class SamplesFile:
    """samples.<rank>.jsonl of one replica, as earlier lives left it; `last` is the number of steps in the end."""

    def __init__(self, rank: Rank, last: int) -> None:
        self._path, self._last = rank.samples_path, last
        self._of_others = [rank.folder / f"samples.{other}.jsonl" for other in range(rank.world_size)]
        self._of_others.remove(self._path)
        cut_last_line(self._path)
        written = read_samples(self._path, StepSample) if self._path.exists() and self._path.stat().st_size else []
        self._next = written[-1].index + 1 if written else 0
        self.origin_s = written[0].at_s - written[0].t_end_s if written and written[0].at_s else None
        self._file = self._path.open("a")

    def __enter__(self) -> SamplesFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._file.close()

    def write(self, sample: StepSample) -> None:
        """Write a step, after those that the replica missed before it; the others have written these by now."""
        if self._next <= sample.index < self._last:
            self.catch_up(sample.index)
            self._append(sample)

    def catch_up(self, to: int) -> None:
        """Write the steps before `to` that the replica missed."""
        for missed in list(self._missed(to)):
            self._append(missed)

    def _missed(self, to: int) -> Iterator[StepSample]:
        if self._next >= to:
            return
        of_others = [{sample.index: sample for sample in read_samples(path, StepSample)} for path in self._of_others]
        for step in range(self._next, to):
            # Another one may have missed the step too, and not have written it yet.
            written = [samples[step] for samples in of_others if step in samples]
            yield self._absent([one for one in written if one.positions])

    def _absent(self, trained: list[StepSample]) -> StepSample:
        one, origin_s = trained[0], self.origin_s or 0.0
        assert one.at_s
        end_s = one.at_s - origin_s
        times = {"t_start_s": end_s - (one.t_end_s - one.t_start_s), "t_end_s": end_s}
        loss = fmean(sample.loss for sample in trained)
        return one.model_copy(update={**times, **_NOTHING, "loss": loss, "memory_bytes": None})

    def _append(self, sample: StepSample) -> None:
        self._file.write(sample.model_dump_json() + "\n")
        self._file.flush()
        self._next = sample.index + 1
