"""Whether predictions have begun to err otherwise than before: the newest sessions beside the older ones.

Runs of one sweep and day err alike, so each such session counts once, by its median. Ranks decide (the exact test of
Wilcoxon, Mann and Whitney), so that a few odd runs do not. docs/results/verdicts.md says how often it errs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import comb, exp
from statistics import median

# Fewer sessions could not tell: of four and four, the most unlike order comes by chance in 3 of 100 cases.
LEAST_SESSIONS = 8
_NEWEST_AT_LEAST, _NEWEST_SHARE = 4, 3
# Older ones tell little of today, and the exact test of more would take long.
_MOST_SESSIONS = 40
_CHANCE = 0.05
# A difference that nobody would act on is no drift.
_MATTERS = 0.03


@dataclass(frozen=True)
class Drift:
    """The newest sessions' measured over predicted speed, over that of the older ones, and how likely by chance."""

    newest: int
    older: int
    ratio: float = 1.0
    chance: float = 1.0

    @property
    def is_known(self) -> bool:
        """Tell whether there are enough sessions to tell."""
        return self.newest + self.older >= LEAST_SESSIONS

    @property
    def is_drift(self) -> bool:
        """Tell whether the newest differ beyond chance, and by enough to matter."""
        return self.is_known and self.chance <= _CHANCE and abs(self.ratio - 1) >= _MATTERS

    @property
    def words(self) -> str:
        """The verdict, with the figures."""
        if not self.is_known:
            count = self.newest + self.older
            return f"drift unknown: {count} sweep{'s' * (count != 1)} by day, and it takes {LEAST_SESSIONS}"
        figures = f"measured over predicted x {self.ratio:.2f} in the newest {self.newest} sweeps by day"
        compared = f"beside the {self.older} before, p = {self.chance:.3f}"
        return f"{'DRIFT' if self.is_drift else 'no drift'}: {figures}, {compared}"


def drift(sessions: Sequence[Sequence[float]]) -> Drift:
    """Judge sessions in the order of time: the logarithms of measured over predicted speed of each one's runs."""
    medians = [median(session) for session in sessions][-_MOST_SESSIONS:]
    newest = max(_NEWEST_AT_LEAST, len(medians) // _NEWEST_SHARE)
    if len(medians) < LEAST_SESSIONS:
        return Drift(0, len(medians))
    ratio = exp(median(medians[-newest:]) - median(medians[:-newest]))
    return Drift(newest, len(medians) - newest, ratio, _chance(_twice_ranks(medians), newest))


def _twice_ranks(values: Sequence[float]) -> list[int]:
    """Return twice the rank of each value, which is whole where equal values share the mean of their ranks."""
    found, rank = dict[float, int](), 1
    for value, equal in groupby(sorted(values)):
        count = len(list(equal))
        found[value], rank = 2 * rank + count - 1, rank + count
    return [found[value] for value in values]


def _chance(ranks: Sequence[int], newest: int) -> float:
    """Return the probability, in any order by chance, of a sum of the newest ranks as far from its mean as this."""
    ways = [{0: 1}, *({} for _ in range(newest))]
    for rank in ranks:
        for size in range(newest, 0, -1):
            for total, count in ways[size - 1].items():
                ways[size][total + rank] = ways[size].get(total + rank, 0) + count
    middle = newest * sum(ranks)
    far = abs(len(ranks) * sum(ranks[-newest:]) - middle)
    return sum(count for total, count in ways[newest].items() if abs(len(ranks) * total - middle) >= far) / comb(
        len(ranks), newest
    )
