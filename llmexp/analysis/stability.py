"""A verdict on a measurement: whether its steps were steady, its interval is narrow, and nothing stood in its way.

A difference counts where it is large enough to matter and more than the steps' own scatter explains. docs/numbers.md has the rules in words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Literal

from llmexp.analysis.contention import Machine, disturbances
from llmexp.analysis.inference import batch_rates, half_width_95, same_level
from llmexp.analysis.quantity import Observed
from llmexp.analysis.window import Repeat, Step, duration_s, slowest, timed_shares
from llmexp.record.result import Stability

# Methods of a table often differ by a tenth; a trend or an uncertainty of half of that may turn their order round.
RELEVANT = 0.05
# One false alarm in a hundred repeats, and only where the difference is relevant besides.
LEVEL = 0.01
# Thirds of 6 steps are the smallest whose complete separation reaches LEVEL in the rank test.
MIN_STEPS = 18
# The smallest end of a warm-up that a window can be told from; the first step of all is profiled and stays out.
WARMUP_END = 3
# Enough batches for a t factor near the normal one, each with steps enough to be nearly independent of the next.
MAX_BATCHES, STEPS_PER_BATCH = 10, 4


@dataclass(frozen=True)
class Interval:
    """A 95 % confidence interval of tokens_per_s, and what it was drawn from."""

    mean: float
    half_width: float
    source: Literal["repeats", "steps"]
    count: int

    @property
    def share(self) -> float:
        """Half the interval over the mean."""
        return self.half_width / self.mean


@dataclass(frozen=True)
class Change:
    """Median step time of a later part over an earlier one, and the probability that chance alone gave such a change."""

    ratio: float
    probability: float

    @property
    def counts(self) -> bool:
        """Whether it is relevant and not explained by scatter."""
        return abs(self.ratio - 1) > RELEVANT and self.probability < LEVEL


def judge(repeats: Sequence[Repeat], speeds: Sequence[Observed], machines: Sequence[Machine]) -> Stability:
    """Judge a run by all its repeats and the tokens_per_s of each, and what its machines say."""
    drifts = [change for repeat in repeats if (change := drift(repeat))]
    warmups = [change for repeat in repeats if (change := warmup_change(repeat))]
    found = interval(speeds) if len(repeats) > 1 or _of_one_size(repeats[0]) else None
    disturbed = [reason for machine in machines for reason in disturbances(machine)]
    other_cores = [machine.other_cores for machine in machines if machine.other_cores is not None]
    against = [*_compiled(repeats), *disturbed, *(_drifted(drifts) or _not_warm(warmups)), *_held_up(repeats), *_wide(found)]
    missing = _missing(repeats, found)
    return Stability(
        verdict="unstable" if against else "unknown" if missing else "stable",
        reasons=against or missing,
        tokens_per_s_low=max(found.mean - found.half_width, 0.0) if found else None,
        tokens_per_s_high=found.mean + found.half_width if found else None,
        source=found.source if found else None,
        drift_ratio=_worst(drifts).ratio if drifts else None,
        warmup_ratio=_worst(warmups).ratio if warmups else None,
        other_cores=max(other_cores, default=None),
    )


def drift(repeat: Repeat) -> Change | None:
    """Last third of the window against its first; None where there are too few steps to tell, or sequences grew."""
    times = _times_s(repeat.measured)
    third = len(times) // 3
    return _change(times[:third], times[-third:]) if len(times) >= MIN_STEPS and _of_one_size(repeat) else None


def warmup_change(repeat: Repeat) -> Change | None:
    """The end of the warm-up against the window; None where either is too short. Steps profiled after the window are no warm-up."""
    if not _of_one_size(repeat):
        return None
    before = [step for step in repeat.warmup if step[0].step < repeat.measured[0][0].step][1:]
    end = _times_s(before[-max(WARMUP_END, len(before) // 3) :])
    return _change(_times_s(repeat.measured), end) if len(end) >= WARMUP_END and len(repeat.measured) >= MIN_STEPS else None


def interval(speeds: Sequence[Observed]) -> Interval | None:
    """Over repeats by Student's t; of a single one over batches of its steps, which cannot know what another process would give."""
    if len(speeds) > 1:
        values = [speed.value for speed in speeds]
        return Interval(fmean(values), half_width_95(values), "repeats", len(values))
    steps = speeds[0].steps
    if len(steps) < MIN_STEPS:
        return None
    batches = batch_rates(steps, min(MAX_BATCHES, len(steps) // STEPS_PER_BATCH))
    return Interval(speeds[0].value, half_width_95(batches), "steps", len(batches))


def is_known_to(speeds: Sequence[Observed], share: float) -> bool:
    """Whether half the interval is less than this share of tokens_per_s; False where there is no interval yet."""
    found = interval(speeds)
    return found is not None and found.share < share


def _of_one_size(repeat: Repeat) -> bool:
    """Whether all steps have as many positions, so that their times may be held against each other."""
    return len({step[0].positions for step in (*repeat.warmup, *repeat.measured)}) == 1


def _change(earlier: Sequence[float], later: Sequence[float]) -> Change:
    return Change(median(later) / median(earlier), same_level(earlier, later))


def _times_s(steps: Sequence[Step]) -> list[float]:
    return [duration_s(slowest(step)) for step in steps]


def _worst(changes: Sequence[Change]) -> Change:
    return max(changes, key=lambda change: (change.counts, abs(change.ratio - 1)))


def _drifted(drifts: Sequence[Change]) -> list[str]:
    if not any(change.counts for change in drifts):
        return []
    return [f"drift: steps of the window's last third took {_worst(drifts).ratio:.2f} times those of its first"]


def _not_warm(warmups: Sequence[Change]) -> list[str]:
    if not any(change.counts for change in warmups):
        return []
    return [f"warm-up not settled: its last steps took {_worst(warmups).ratio:.2f} times those of the window"]


def _held_up(repeats: Sequence[Repeat]) -> list[str]:
    share = min(share for repeat in repeats for share in timed_shares(repeat))
    if share >= 1 - RELEVANT:
        return []
    return [f"host between steps: only {100 * share:.1f} % of the window was inside steps, between them the device waited for the host"]


def _compiled(repeats: Sequence[Repeat]) -> list[str]:
    graphs = max(rank.compiled_in_window for repeat in repeats for rank in repeat.ranks)
    return [f"compilation: torch.compile made {graphs} graph{'s' * (graphs > 1)} inside the measured window"] if graphs else []


def _wide(found: Interval | None) -> list[str]:
    if found is None or found.share <= RELEVANT:
        return []
    source = f"{found.count} repeats" if found.source == "repeats" else f"{found.count} batches of steps"
    return [f"noise: the 95 % interval of tokens/s is ± {100 * found.share:.1f} %, from {source}"]


def _missing(repeats: Sequence[Repeat], found: Interval | None) -> list[str]:
    """What a verdict lacks; a drift that cannot be judged leaves it open, however narrow the interval."""
    if not all(map(_of_one_size, repeats)):
        return ["sequences grew from step to step, whose times say nothing of each other then"]
    shortest = min(len(repeat.measured) for repeat in repeats)
    if shortest < MIN_STEPS or found is None:
        return [f"too few steps to judge: {shortest} in the window, {MIN_STEPS} are needed"]
    unjudged = [repeat for repeat in repeats if warmup_change(repeat) is None]
    return [f"warm-up too short to judge: {WARMUP_END + 1} steps are needed"] if unjudged else []
