"""A search for the largest micro batch that fits into memory.

From the start it doubles until a batch fails, or halves until one fits; then it takes powers of two in between, or
bisects. Near the limit a batch may fit by luck, so the batch that is found is tried again until it has fitted often
enough; one failure bounds the search from above, so that luck makes the answer smaller and never larger. What comes
next follows from the probes so far alone, whatever their order, so that a search that was interrupted goes on from its
records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

# The micro batch, in sequences a rank, and whether a run with it fitted.
Probe = tuple[int, bool]


@dataclass(frozen=True)
class LargestBatch:
    """The end of a search, in sequences a rank: the largest batch that fits, and the smallest that does not.

    micro is None where not even 1 fits. does_not_fit is None where the largest batch that was allowed fits.
    """

    micro: int | None
    does_not_fit: int | None


@dataclass(frozen=True)
class BatchSearch:
    """How a search goes: from which batch, over which, and how often the one that is found has to fit.

    start and largest are in sequences a rank. Of `tries` probes of the answer `fits` have to fit; both are 1 or more.

    Raises ValueError where no answer could keep these bounds.
    """

    start: int
    search: Literal["pow2", "bisect"] = "bisect"
    largest: int | None = None
    fits: int = 2
    tries: int = 3

    def __post_init__(self) -> None:
        if not 1 <= self.fits <= self.tries:
            raise ValueError(f"{self.fits} of {self.tries} probes can't fit")
        if min(self.start, self.start if self.largest is None else self.largest) < 1:
            raise ValueError("a batch holds 1 sequence or more")

    def step(self, probes: Sequence[Probe]) -> int | LargestBatch:
        """Return the next micro batch to try, or the end of the search."""
        low, high = self._bounds(probes)
        if low is None:
            return self._first(high)
        following = self._following(low, high)
        if following is not None:
            return following
        if sum(fitted for micro, fitted in probes if micro == low) < self.fits:
            return low
        return LargestBatch(low, high)

    def _bounds(self, probes: Sequence[Probe]) -> tuple[int | None, int | None]:
        """Return the largest batch that fitted below all that do not fit, and the smallest that does not."""
        high = min((micro for micro, _ in probes if self._does_not_fit(micro, probes)), default=None)
        fitted = (micro for micro, fitted in probes if fitted and (high is None or micro < high))
        return max(fitted, default=None), high

    def _does_not_fit(self, micro: int, probes: Sequence[Probe]) -> bool:
        """Say whether a batch failed at once, or so often that too few tries are left."""
        tried = [fitted for other, fitted in probes if other == micro]
        if True not in tried:
            return False in tried
        return tried.count(False) > self.tries - self.fits

    def _first(self, high: int | None) -> int | LargestBatch:
        """Return the start, or a smaller batch where none has fitted yet."""
        if high is None:
            return self._allowed(self.start if self.largest is None else min(self.start, self.largest))
        return self._allowed(high // 2) if high > 1 else LargestBatch(None, high)

    def _following(self, low: int, high: int | None) -> int | None:
        """Return a batch between the bounds that was not tried; None where there is none."""
        if high is None:
            doubled = self._allowed(2 * low if self.largest is None else min(2 * low, self.largest))
            return doubled if doubled > low else None
        middle = 2 * self._allowed(low) if self.search == "pow2" else (low + high) // 2
        return middle if low < middle < high else None

    def _allowed(self, micro: int) -> int:
        """Return the batch, or the power of two below it where only those are tried."""
        return 1 << (micro.bit_length() - 1) if self.search == "pow2" else micro
