"""The present pace of a run, by the samples that ended last."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from llmexp.record.samples import Sample

FEWEST = 10


class Recent:
    """The last FEWEST samples, and all that ended while the last one took its time.

    Steps end one after the other. Requests are under way together: those that end in a second are as many as a server
    answers in a second, however long each has waited, and those of one batch end at the same moment.
    """

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque()
        self._begin_s = 0.0

    def __len__(self) -> int:
        return len(self._samples)

    def clear(self) -> None:
        """Forget all samples."""
        self._samples.clear()

    def extend(self, samples: Iterable[Sample]) -> None:
        """Take further samples, in the order in which they ended."""
        for sample in samples:
            if not self._samples:
                self._begin_s = sample.t_start_s
            self._samples.append(sample)
            while len(self) > FEWEST and self._samples[0].t_end_s <= sample.t_start_s:
                self._begin_s = self._samples.popleft().t_end_s

    @property
    def last(self) -> Sample:
        """The sample that ended last; call only where there is one."""
        return self._samples[-1]

    @property
    def amount(self) -> float:
        """The work done in them, in the unit of the task's rate."""
        return sum(sample.amount for sample in self._samples)

    @property
    def seconds(self) -> float:
        """The seconds in which they ended, more than 0."""
        return max(self.last.t_end_s - self._begin_s, 1e-9)
