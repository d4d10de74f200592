"""Work as spans of time, as a tracker's traces show it: the parts lie within the whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class TimeSpan:
    """A piece of work from `start_s` to `end_s`, what is known of it, and the pieces that it consists of.

    `problem` says why it did not end well.
    """

    name: str
    start_s: float
    end_s: float
    known: Mapping[str, Any] = field(default_factory=dict)
    parts: Sequence[TimeSpan] = ()
    problem: str = ""

    def moved(self, by_s: float) -> TimeSpan:
        """Return the same work on another clock."""
        parts = tuple(part.moved(by_s) for part in self.parts)
        return TimeSpan(self.name, self.start_s + by_s, self.end_s + by_s, self.known, parts, self.problem)
