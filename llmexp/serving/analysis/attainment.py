"""Did enough requests of a load point keep their objective?

In a queue requests miss it in runs, one because the one before it did. So a hundred requests tell less than a hundred
throws of a coin. How much less is estimated by how unequal parts of the load are, and Wilson's interval of the share is
that of so many fewer requests. The verdict holds for a load that the server keeps up with: in overload the share falls
for as long as the load lasts. `python -m benchmarks trust` simulates how often it errs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean, stdev
from typing import Literal

from llmexp.analysis.inference import WIDENING, wilson

# DistServe (arXiv 2401.09670) asks for nine requests in ten first, and for 99 in 100 besides; MLPerf's server scenario
# asks for 99 in 100. The default is what some hundred requests can show: to say of 99 in 100 that they keep the
# objective takes 540 requests that all do, and of nine in ten 50.
SHARE = 0.9
# Each of the two wrong verdicts has half of the rest, one in a hundred.
CONFIDENCE = 0.98
# Requests that used more than such shares of what they were allowed count too when it is estimated how much requests
# depend on each other: where few or none missed, those that missed cannot tell. The lower share counts in loads of
# fewer than MANY requests, which may be over before a queue has built up.
NEAR, NEAR_IF_FEW, MANY = 0.7, 0.5, 1000
# The parts of the load that are compared, and the fewest requests of one. Parts depend on each other, too.
MOST_PARTS, REQUESTS_PER_PART = 10, 5
# A shorter load may end before a queue has built up, and so cannot show that the objective is kept.
FEWEST_REQUESTS = 100
# The same where requests come in bursts, whose gaps vary by more than so many times their mean; those of Poisson
# arrivals vary by their mean.
FEWEST_IN_BURSTS, BURSTY = 200, 1.3


@dataclass(frozen=True)
class Attainment:
    """The verdict whether enough requests kept the objective, their share, and its 98 % interval for longer loads."""

    verdict: Literal["kept", "missed", "unknown"]
    kept_share: float | None = None
    low: float = 0.0
    high: float = 1.0
    reasons: list[str] = field(default_factory=list)
    more_requests_tell: bool = True
    """Of an unknown verdict; False where requests do not say whether they kept the objective."""


def fewest_requests(due_s: Sequence[Sequence[float]]) -> int:
    """Return how many requests of each repeat it takes to say that an objective was kept, by when they were due."""
    gaps_s = [after - before for repeat in due_s for before, after in pairwise(repeat)]
    bursty = len(gaps_s) > 1 and stdev(gaps_s) > BURSTY * fmean(gaps_s)
    return FEWEST_IN_BURSTS if bursty else FEWEST_REQUESTS


def attainment(
    used: Sequence[Sequence[float | None]], share: float = SHARE, fewest: int = FEWEST_REQUESTS
) -> Attainment:
    """Judge by how much of their allowance requests used, repeat by repeat, in the order in which they were due.

    A request kept the objective with 1 or less, as Objective.used_by says it. Each repeat begins with an idle server,
    so that each needs `fewest` requests before it can be said that the objective is kept. Where some requests do not
    tell, the objective is still missed if it is missed with all of these within it; else nothing is known.
    """
    found = _of_known([[one or 0.0 for one in repeat] for repeat in used], share, fewest)
    silent, total = sum(one is None for repeat in used for one in repeat), sum(map(len, used))
    if not silent or found.verdict == "missed":
        return found
    return Attainment("unknown", reasons=[_uncounted(silent, total)], more_requests_tell=False)


def _of_known(used: Sequence[Sequence[float]], share: float, fewest: int) -> Attainment:
    total = sum(map(len, used))
    if not total:
        return Attainment("unknown", reasons=["there are no requests"])
    kept = sum(one <= 1 for repeat in used for one in repeat) / total
    levels = (1.0, NEAR) if total >= MANY else (1.0, NEAR, NEAR_IF_FEW)
    independent = total / max(_dependence(used, level) for level in levels)
    low, high = wilson(kept, independent, CONFIDENCE)
    if low >= share and min(map(len, used)) >= fewest:
        return Attainment("kept", kept, low, high)
    if high < share:
        return Attainment(
            "missed", kept, low, high, [f"{kept:.1%} of the requests kept the objective, not {share:.0%}"]
        )
    return Attainment("unknown", kept, low, high, [_vague(kept, (low, high), share, used, fewest)])


def _dependence(used: Sequence[Sequence[float]], level: float) -> float:
    """Return how many requests count as one, by how unequal the shares above a level are in parts of the load."""
    parts = [part for repeat in used for part in _parts([one > level for one in repeat])]
    shares, size = [fmean(part) for part in parts], fmean(len(part) for part in parts)
    share = fmean(shares)
    if len(parts) < 2 or share in (0.0, 1.0):
        return 1.0
    return max(1.0, WIDENING * stdev(shares) ** 2 * size / (share * (1 - share)))


def _parts(above: Sequence[bool]) -> list[Sequence[bool]]:
    count = max(1, min(MOST_PARTS, len(above) // REQUESTS_PER_PART))
    ends = [part * len(above) // count for part in range(count + 1)]
    return [above[begin:end] for begin, end in pairwise(ends)]


def _uncounted(silent: int, total: int) -> str:
    whose = f"{total} requests" if silent == total else f"{silent} of {total} requests"
    return f"the output tokens of {whose} were not counted, so it is unknown whether they kept a limit of TPOT"


def _vague(
    kept: float, interval: tuple[float, float], share: float, used: Sequence[Sequence[float]], fewest: int
) -> str:
    total = sum(map(len, used))
    if interval[0] >= share:
        where = " in each repeat" if len(used) > 1 else ""
        return f"{kept:.1%} of {total} requests kept the objective: {fewest}{where} are needed to decide"
    return (
        f"{kept:.1%} of {total} requests kept the objective, and of more requests {interval[0]:.0%} to "
        f"{interval[1]:.0%} may: this does not decide whether {share:.0%} do"
    )
