"""Compare two runs round by round: what meets both repeats of a round alike cancels in their ratio.

It is for runs whose repeats took turns on a host that other programs shared. docs/results/verdicts.md has the rule, and
`python -m benchmarks trust` simulates how often it errs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log, sqrt
from statistics import fmean, stdev

from llmexp.analysis.contention import OTHER_CORES
from llmexp.analysis.inference import Estimate
from llmexp.record.result import DoubtKind, Stability

# The probability that any run of a table is told from another by its rounds, where all are equally fast.
ERROR = 0.02
# Two ratios may agree by chance.
MIN_ROUNDS = 3
# A rate is taken to go with the share of the cores that is left to a run. It may not depend on it, or go with its
# square, as ranks wait for the slowest: this power of what the shares differ by is allowed for in either direction.
ALLOWED_POWER = 1.0


@dataclass(frozen=True)
class RepeatInRound:
    """One repeat of an interleaved run, in ISO 8601 times, and how much of the host it had."""

    rate: float
    cores: int
    """The cores that the run may use."""
    taken_cores: float
    """The mean number of cores that other processes and a hypervisor took during its window."""
    began_at: str
    ended_at: str
    driver: tuple[str, int] = ("", 0)
    """The host, and which of the processes that drove the run there."""

    @property
    def free_share(self) -> float:
        """The share of the cores that was left to the run; a hundredth where nothing was."""
        return max(1 - self.taken_cores / self.cores, 0.01)


Round = tuple[RepeatInRound, RepeatInRound]


@dataclass(frozen=True)
class PairedEstimate(Estimate):
    """The logarithm of a ratio by the rounds; what may explain it besides the runs makes its intervals wider."""

    allowance: float = 0.0

    def half_width(self, confidence: float = 0.95) -> float:
        """Return Student's half width over the rounds, and the allowance."""
        return super().half_width(confidence) + self.allowance


def paired(a: Sequence[RepeatInRound], b: Sequence[RepeatInRound]) -> PairedEstimate | None:
    """Estimate b over a, each at an equal share of the host, by the rounds that one driver took.

    None where these are under MIN_ROUNDS, where others took more cores from one than from the other on average, or
    where the repeats were not taken in the same rounds.
    """
    taken = list(zip(a, b, strict=False))
    rounds = [(of_a, of_b) for of_a, of_b in taken if of_a.driver == of_b.driver]
    if len(rounds) < MIN_ROUNDS or not _took_turns(taken) or _is_uneven(rounds):
        return None
    shares = [log(of_b.free_share / of_a.free_share) for of_a, of_b in rounds]
    ratios = [log(of_b.rate / of_a.rate) - share for (of_a, of_b), share in zip(rounds, shares, strict=True)]
    return PairedEstimate(
        fmean(ratios),
        stdev(ratios) / sqrt(len(ratios)),
        len(ratios) - 1,
        allowance=ALLOWED_POWER * abs(fmean(shares)),
    )


def is_contended(judged: Stability | None, besides: Collection[DoubtKind] = ()) -> bool:
    """Tell whether only a host that others shared speaks against a run, or nothing.

    Reasons of the kinds in `besides` are for the caller to allow for.
    """
    reasons = judged.reasons if judged and judged.verdict == "unstable" else []
    return all(reason.kind in (DoubtKind.CONTENTION, *besides) for reason in reasons)


def _took_turns(rounds: Sequence[Round]) -> bool:
    """Tell whether no two repeats overlapped, and both of every round ended before either of the next one began."""
    apart = all(min(a.ended_at, b.ended_at) <= max(a.began_at, b.began_at) for a, b in rounds)
    return apart and all(
        max(one.ended_at for one in before) <= min(one.began_at for one in after) for before, after in pairwise(rounds)
    )


def _is_uneven(rounds: Sequence[Round]) -> bool:
    return abs(fmean(b.taken_cores - a.taken_cores for a, b in rounds)) > OTHER_CORES
