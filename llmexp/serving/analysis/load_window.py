"""The time over which every rate of a load point is taken: requests, tokens, goodput, and what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llmexp.serving.record.requests import RequestSample


@dataclass(frozen=True)
class LoadWindow:
    """From when the first request was due to the last whole answer, or until the last was due if that is later.

    So requests that failed at once do not shorten it, and those that failed long after the load do not lengthen it.
    Times are seconds by the client's clock.
    """

    begin_s: float
    end_s: float

    @classmethod
    def of(cls, samples: Sequence[RequestSample]) -> LoadWindow:
        """Return the window of a load point's measured requests, of which there is one or more."""
        # A later turn is due when the one before has ended, also where that one failed.
        due_s = [one.scheduled_s for one in samples if not one.turn]
        answered_s = [one.end_s for one in samples if not one.problem]
        return cls(min(one.scheduled_s for one in samples), max(due_s + answered_s, default=0.0))

    @property
    def seconds(self) -> float:
        """How long it is."""
        return max(0.0, self.end_s - self.begin_s)

    def per_s(self, amount: float) -> float:
        """Return how much of something there was a second; 0 where the window has no length."""
        return amount / self.seconds if self.seconds else 0.0
