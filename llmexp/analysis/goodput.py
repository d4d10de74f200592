"""The share of a long training's time that counts, where processes die: expected, best and simulated.

A failure stops all ranks. They restart, load the last checkpoint, and do again what came after it. Failures are
exponential: independent of each other and of age. They strike while checkpoints are written and while ranks restart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import ceil, exp, sqrt
from random import Random
from statistics import fmean, quantiles

SEED = 0
# Below this share no training is worth simulating; each would meet thousands of failures before its first checkpoint.
LEAST_SHARE = 0.01
_TRIALS, _DRAWS = (200, 2000), 400_000
_MOST_EXPONENT = 700.0


@dataclass(frozen=True)
class Interruptions:
    """What a training meets, in seconds: the mean between failures, and what a checkpoint and a restart take."""

    mtbf_s: float
    checkpoint_s: float
    restart_s: float

    @property
    def best_interval_s(self) -> float:
        """The seconds of training between checkpoints at which most time counts.

        J. T. Daly, A higher order estimate of the optimum checkpoint interval for restart dumps (2006), which corrects
        Young's square root of twice the product of checkpoint and mean time (1974).
        """
        ratio = self.checkpoint_s / (2 * self.mtbf_s)
        if ratio >= 1:
            return self.mtbf_s
        young = sqrt(2 * self.checkpoint_s * self.mtbf_s)
        return young * (1 + sqrt(ratio) / 3 + ratio / 9) - self.checkpoint_s

    def expected_share(self, interval_s: float) -> float:
        """Return the share of the time that counts in the long run: Daly's complete solution, without approximation."""
        exponent = (interval_s + self.checkpoint_s) / self.mtbf_s
        if exponent + self.restart_s / self.mtbf_s > _MOST_EXPONENT:
            return 0.0
        return interval_s / (self.mtbf_s * exp(self.restart_s / self.mtbf_s) * (exp(exponent) - 1))


@dataclass(frozen=True)
class SpentTime:
    """Where the seconds of a training went, and how many failures it met."""

    useful_s: float
    checkpoints_s: float
    lost_s: float
    """Steps done again, and checkpoints that were cut off."""
    restarts_s: float
    failures: int

    @property
    def whole_s(self) -> float:
        """All seconds, from the first start to the last checkpoint."""
        return self.useful_s + self.checkpoints_s + self.lost_s + self.restarts_s

    @property
    def share(self) -> float:
        """The share that counts."""
        return self.useful_s / self.whole_s


@dataclass(frozen=True)
class Simulated:
    """Means over simulated trainings, and the ends of the interval that has nine of ten of their shares."""

    share: float
    low: float
    high: float
    checkpoints: float
    """Share of the time that checkpoints take."""
    lost: float
    restarts: float
    failures: float
    """Failures in a whole training."""
    trials: int


def spent(work_s: float, of: Interruptions, interval_s: float, gaps: Iterable[float]) -> SpentTime:
    """Return where the time of one training goes that fails after each of these gaps, one after the other.

    The first start counts as a restart, and the training ends with a checkpoint. Gaps that do not last until the end
    are followed by none.
    """
    cycle, segments = interval_s + of.checkpoint_s, ceil(work_s / interval_s)
    done, lost, restarts, failures = 0, 0.0, 0.0, 0
    for gap in gaps:
        running = gap - of.restart_s
        restarts += min(gap, of.restart_s)
        if running >= work_s - done * interval_s + (segments - done) * of.checkpoint_s:
            break
        failures += 1
        if running > 0:
            whole = int(running // cycle)
            done, lost = done + whole, lost + running - whole * cycle
    else:
        restarts += of.restart_s
    return SpentTime(work_s, segments * of.checkpoint_s, lost, restarts, failures)


def simulated(work_s: float, of: Interruptions, interval_s: float, seed: int = SEED) -> Simulated:
    """Simulate trainings of `work_s` seconds of steps, of which at least LEAST_SHARE must count.

    Of very long ones it is the part with the first thousands of failures, so that the interval is not too narrow.
    """
    expected = work_s / of.expected_share(interval_s) / of.mtbf_s
    trials = int(min(max(_DRAWS / (1 + expected), _TRIALS[0]), _TRIALS[1]))
    part = min(1.0, _DRAWS / trials / (1 + expected))
    random = Random(seed)
    found = [spent(part * work_s, of, interval_s, _gaps(random, of.mtbf_s)) for _ in range(trials)]
    ends = quantiles([one.share for one in found], n=20)
    whole = fmean(one.whole_s for one in found)
    return Simulated(
        share=part * work_s / whole,
        low=ends[0],
        high=ends[-1],
        checkpoints=fmean(one.checkpoints_s for one in found) / whole,
        lost=fmean(one.lost_s for one in found) / whole,
        restarts=fmean(one.restarts_s for one in found) / whole,
        failures=fmean(one.failures for one in found) / part,
        trials=trials,
    )


def _gaps(random: Random, mtbf_s: float) -> Iterator[float]:
    while True:
        yield random.expovariate(1 / mtbf_s)
