"""Did a server keep up with an open load, whose requests come at their times however long earlier ones take?

What is looked at is the backlog: the requests that were due and are not answered yet. Where a server keeps up it goes
up and down around a level; in overload it grows by the share of the requests that the server cannot serve, in whatever
order it serves them. Latencies tell less: those of neighbors hang together over hundreds of requests, and in a server
that works on all requests at once they stop growing when the load ends.

`python -m benchmarks trust` simulates how often the verdict errs; docs/results/verdicts.md has the rates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, inf, log10, sqrt
from statistics import fmean, pstdev, stdev
from typing import Literal

from llmexp.analysis.inference import Estimate, wilson
from llmexp.record.digits import rounded
from llmexp.serving.analysis.backlog import Load

Verdict = Literal["kept_up", "overloaded", "unknown"]
# A load of 1.25 times what the server can do leaves a fifth unserved. This has to be ruled out before it is said that
# the server kept up.
RULED_OUT = 0.2
# A smaller unserved share counts as none, as a smaller drift does in the verdict on a run's steps.
RELEVANT = 0.05
# Each of the two wrong verdicts has half of the rest, one in a hundred. Bursts make the intervals a little too narrow;
# what is promised is two in a hundred.
CONFIDENCE = 0.98
# Where the first answers take more than a sixth of the load's time, the backlog reaches its level late or never.
SHORTEST = 6.0
# A request may take this many times as long as the first ones once the server works on as many as it can.
SLOWDOWN = 5.0
# With fewer requests after the backlog has settled, bursts decide.
FEWEST_REQUESTS = 30
# Where requests differ much in length, a load may be over before one of the longest came, and looks easier than it was.
# So nothing is said to be kept up with where the longest answer took more than this share of the load's time,
LONGEST = 0.3
# nor where one more pause between answers like the longest could change the verdict; it counts so many times more for
# each 1 by which the coefficient of variation of all pauses is above the 1 of exponential ones.
UNEVEN = 4.0
# The interval is that of a normal distribution, and a few dozens of answers are skewed: with FEW of them its upper half
# is twice as wide, and with more it soon is as it was.
FEW = 45


@dataclass(frozen=True)
class Saturation:
    """The verdict whether a server kept up with a load, and the share of the requests that it could not serve.

    `unserved` is negative where the server could have served more; None where it was not estimated.
    """

    verdict: Verdict
    unserved: Estimate | None = None
    reasons: list[str] = field(default_factory=list)

    @property
    def served_share(self) -> float | None:
        """The share of the arriving requests that the server could serve, at most 1; None where it is not known."""
        return None if self.unserved is None else min(1.0, max(0.0, 1 - self.unserved.value))


def saturation(loads: Sequence[Load]) -> Saturation:
    """Judge the repeats of a load point, one or several, which all had the same rate."""
    if not loads or any(load.answered_s == [] or load.duration_s <= 0 for load in loads):
        return Saturation("unknown", reasons=["there are no requests, or none was answered"])
    lost, total = sum(load.lost for load in loads), sum(len(load.due_s) for load in loads)
    if wilson(lost / total, total, CONFIDENCE)[0] > RELEVANT:
        return Saturation("overloaded", _share(lost, total), [f"{lost} of {total} requests had no whole answer"])
    swamped = next((load for load in loads if load.late_s > load.duration_s + SLOWDOWN * load.early_s), None)
    if swamped:
        return Saturation("overloaded", reasons=[_swamped(swamped)])
    hasty = [load for load in loads if SHORTEST * load.early_s > load.duration_s]
    few = [load for load in loads if load.settled_requests < FEWEST_REQUESTS]
    if hasty or few:
        return Saturation("unknown", reasons=[_too_short((hasty + few)[0])])
    unserved = [share for load in loads for share in load.unserved()]
    found = Estimate(fmean(unserved), stdev(unserved) / sqrt(len(unserved)), len(unserved) - 1)
    low, high = found.interval(CONFIDENCE)[0], _highest(found, loads)
    settling = fmean(load.settling for load in loads)
    if low > settling and found.value - settling > RELEVANT:
        return Saturation("overloaded", found, [f"about {min(found.value, 1.0):.0%} of the requests stayed unserved"])
    if high >= RULED_OUT:
        return Saturation("unknown", found, [_vague(found, (low, high), loads)])
    lengthy = next((load for load in loads if load.longest_s > LONGEST * load.duration_s), None)
    return Saturation("unknown", found, [_too_lengthy(lengthy)]) if lengthy else Saturation("kept_up", found)


def _highest(found: Estimate, loads: Sequence[Load]) -> float:
    """Return the highest share of the requests that may have stayed unserved, with what the load may not have shown."""
    pauses_s = [pause_s for load in loads for pause_s in load.pauses_s]
    if not sum(pauses_s):
        return inf
    mean_s = fmean(pauses_s)
    uneven = max(0.0, pstdev(pauses_s) / mean_s - 1)
    once_more = (max(pauses_s) - mean_s) / sum(load.span_s for load in loads)
    wider = 1 + (FEW / len(pauses_s)) ** 2
    return found.value + wider * found.half_width(CONFIDENCE) + (1 + UNEVEN * uneven) * once_more


def _swamped(load: Load) -> str:
    return (
        f"the last requests took {rounded(load.late_s)} s, though all had come within {rounded(load.duration_s)} s and "
        f"the first ones took {rounded(load.early_s)} s"
    )


def _too_short(load: Load) -> str:
    needed = max(2 * FEWEST_REQUESTS, SHORTEST * load.early_s / load.duration_s * len(load.due_s))
    return (
        f"too few requests to judge: they came within {rounded(load.duration_s)} s, and the first ones took "
        f"{rounded(load.early_s)} s; at least {_round_up(needed)} are needed at this rate"
    )


def _too_lengthy(load: Load) -> str:
    needed = load.longest_s / (LONGEST * load.duration_s) * len(load.due_s)
    return (
        f"the longest answer took {rounded(load.longest_s)} s, and the requests came within "
        f"{rounded(load.duration_s)} s, too short a time to see how often this happens; about {_round_up(needed)} "
        f"requests "
        "would settle it at this rate"
    )


def _share(events: int, tries: int) -> Estimate:
    share = events / tries
    return Estimate(share, sqrt(share * (1 - share) / tries), tries - 1)


def _vague(found: Estimate, interval: tuple[float, float], loads: Sequence[Load]) -> str:
    # An interval that is narrow enough ends below RULED_OUT or begins above 0.
    wanted = max(RULED_OUT - found.value, found.value)
    widest = max(found.half_width(CONFIDENCE), min(interval[1], 1.0) - found.value)
    needed = sum(len(load.due_s) for load in loads) * (widest / wanted) ** 2
    low, high = (min(max(end, 0.0), 1.0) for end in interval)
    unserved = f"{low:.0%} to {high:.0%} of the requests may have stayed unserved"
    return f"{unserved}: about {_round_up(needed)} requests would settle it"


def _round_up(count: float) -> int:
    """Round up to two digits."""
    unit = 10 ** max(0, int(log10(count)) - 1)
    return int(ceil(count / unit) * unit)
