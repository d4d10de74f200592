"""The requests of an open load that were due and are not answered yet: how many more there are from time to time.

Those that never got a whole answer are left out of it: nothing tells how long the server had them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from math import inf
from statistics import fmean, median

from llmexp.serving.analysis.request_latency import end_to_end_s
from llmexp.serving.record.requests import RequestSample

# The backlog of a server that starts empty grows until the first answers have come and a level is reached. So the load
# counts from twice the median latency on, or from its half.
SETTLING = 2.0
# The first and the last tenth of the requests, of which the medians are taken, have as many requests as this or more.
FEWEST_OF_TENTH = 7
# The settled time is cut into at most so many equal pieces, with at least so many requests in each on average.
MOST_PIECES, REQUESTS_PER_PIECE = 20, 8


@dataclass(frozen=True)
class Load:
    """One repeat of a load point: when each request was due, and how long after that it was answered.

    Requests stand in the order in which they were due. The latency is None where there was no whole answer.
    """

    due_s: Sequence[float]
    latency_s: Sequence[float | None]

    @classmethod
    def of(cls, samples: Sequence[RequestSample]) -> Load:
        """Return the load of all requests that one repeat had, its warm-up included."""
        ordered = sorted(samples, key=lambda sample: sample.scheduled_s)
        return cls([one.scheduled_s for one in ordered], [end_to_end_s(one) for one in ordered])

    @classmethod
    def of_conversations(cls, samples: Sequence[RequestSample]) -> Load:
        """Return the load of conversations, each from its first turn to the end of its last.

        Later turns are due when a server has answered: in overload not they become more and more, but conversations.
        """
        turns: dict[int, list[RequestSample]] = {}
        for one in samples:
            turns.setdefault(one.index - one.turn, []).append(one)
        each = sorted((sorted(own, key=lambda one: one.turn) for own in turns.values()), key=lambda own: _due_s(own))
        return cls([_due_s(own) for own in each], [_lasted_s(own) for own in each])

    @property
    def duration_s(self) -> float:
        """The time from the first request that was due to the last."""
        return self.due_s[-1] - self.due_s[0]

    @cached_property
    def answered_s(self) -> list[float]:
        """The latencies of the requests that were answered."""
        return [late for _, late in self._answered]

    @property
    def lost(self) -> int:
        """How many requests had no whole answer."""
        return len(self.due_s) - len(self._answered)

    @property
    def early_s(self) -> float:
        """The median latency of the first tenth, which met a server that was nearly idle."""
        return median(self.answered_s[: self._tenth])

    @property
    def late_s(self) -> float:
        """The median latency of the last tenth."""
        return median(self.answered_s[-self._tenth :])

    @cached_property
    def settled_s(self) -> float:
        """When the backlog has reached its level, if it ever does."""
        return self.due_s[0] + min(self.duration_s / 2, SETTLING * median(self.answered_s))

    @property
    def settled_requests(self) -> int:
        """How many of the answered requests were due in the settled time."""
        return len(self._answered) - bisect_right(self._dues_s, self.settled_s)

    @property
    def longest_s(self) -> float:
        """The longest latency."""
        return max(self.answered_s)

    @property
    def span_s(self) -> float:
        """How long the settled time is."""
        return self.due_s[-1] - self.settled_s

    @cached_property
    def pauses_s(self) -> list[float]:
        """The times from one answer to the next in the settled time, those with nothing to answer left out."""
        resumed_s = {end for end in self._idle[1] if end > self.settled_s}
        marks_s = sorted(resumed_s.union(end for end in self._ends_s if self.settled_s < end < self.due_s[-1]))
        return [after - before for before, after in pairwise(marks_s) if after not in resumed_s]

    @property
    def settling(self) -> float:
        """How much the backlog yet grows in the settled time where a server keeps up, as a share of its requests.

        Until a load has lasted as long as a request takes, the backlog holds it. How long requests take is known by
        those of the load's first half: in overload those of the second wait longer for that very reason.
        """
        whole_s, settled_s = self.duration_s, self.settled_s - self.due_s[0]
        first = [late for due, late in self._answered if due - self.due_s[0] <= whole_s / 2]
        return fmean(min(late, whole_s) - min(late, settled_s) for late in first) / self.span_s if first else 0.0

    def unserved(self) -> list[float]:
        """Return by how much requests outnumbered what the server could serve, for each piece of the settled time.

        This is the growth of the backlog, less what could have been served while there was nothing to serve, at the
        rate of the time at work. It is given as a share of the requests of a piece, and is negative where the server
        could have served more.
        """
        pieces = min(MOST_PIECES, self.settled_requests // REQUESTS_PER_PIECE)
        begin_s, length_s = self.settled_s, (self.due_s[-1] - self.settled_s) / pieces
        times_s = [begin_s + piece * length_s for piece in range(pieces)] + [self.due_s[-1]]
        left, idle_s = [self._left(time_s) for time_s in times_s], [self._idle_s(time_s) for time_s in times_s]
        served = self.settled_requests - (left[-1] - left[0])
        at_work_s = self.due_s[-1] - begin_s - (idle_s[-1] - idle_s[0])
        rate_per_s = served / at_work_s if at_work_s > 0 else 0.0
        growths = (after - before for before, after in pairwise(left))
        spare = (rate_per_s * (after - before) for before, after in pairwise(idle_s))
        return [(more - less) * pieces / self.settled_requests for more, less in zip(growths, spare, strict=True)]

    def _left(self, time_s: float) -> int:
        """Count the requests that were due until then and answered later."""
        return bisect_right(self._dues_s, time_s) - bisect_right(self._ends_s, time_s)

    def _idle_s(self, time_s: float) -> float:
        """Return for how long there was no request to answer until then."""
        starts_s, ends_s, sums_s = self._idle
        place = bisect_right(starts_s, time_s) - 1
        return sums_s[place] - max(0.0, ends_s[place] - time_s)

    @cached_property
    def _answered(self) -> list[tuple[float, float]]:
        pairs = zip(self.due_s, self.latency_s, strict=True)
        return [(due, late) for due, late in pairs if late is not None]

    @cached_property
    def _dues_s(self) -> list[float]:
        return [due for due, _ in self._answered]

    @cached_property
    def _ends_s(self) -> list[float]:
        return sorted(due + late for due, late in self._answered)

    @cached_property
    def _idle(self) -> tuple[list[float], list[float], list[float]]:
        """When there was nothing to answer: beginnings, ends, and how long it was in all until these ends."""
        starts_s, ends_s, busy_until_s = [-inf], [self.due_s[0]], self.due_s[0]
        for due, late in self._answered:
            if due > busy_until_s:
                starts_s.append(busy_until_s)
                ends_s.append(due)
            busy_until_s = max(busy_until_s, due + late)
        lengths = (end - start for start, end in zip(starts_s[1:], ends_s[1:], strict=True))
        return starts_s, ends_s, list(accumulate(lengths, initial=0.0))

    @property
    def _tenth(self) -> int:
        return max(FEWEST_OF_TENTH, len(self.due_s) // 10)


def _due_s(turns: Sequence[RequestSample]) -> float:
    return turns[0].scheduled_s


def _lasted_s(turns: Sequence[RequestSample]) -> float | None:
    """Return how long a conversation lasted; None where a turn has no whole answer."""
    return None if any(one.problem for one in turns) else turns[-1].end_s - _due_s(turns)
