"""A verdict on a measurement: whether its steps were steady, its interval is narrow, and nothing disturbed it.

A difference counts where it is large enough to matter and more than the steps' own scatter explains. docs/numbers.md
explains the rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

from llmexp.analysis.contention import Machine, disturbances, sm_clocks
from llmexp.analysis.inference import (
    Estimate,
    apart,
    batch_levels,
    batch_rates,
    half_width,
    half_width_of_one,
    repeats_for,
    trend,
)
from llmexp.analysis.quantity import Measurement
from llmexp.analysis.window import Repeat, duration_s, slowest, timed_shares
from llmexp.record.result import Doubt, DoubtKind, Stability
from llmexp.record.samples import Sample

AnyRepeat = Repeat[Any, Any]
# Methods of a table often differ by a tenth; a trend or an uncertainty of half of that may reverse their order.
RELEVANT = 0.05
# A run is stable only if a trend of this size is ruled out, even with the scatter of its steps.
RULED_OUT = 2 * RELEVANT
# The confidence of each test for a change. In simulations with it, a quiet run is called unstable less than once in
# fifty, and the protocol measure=paper finds a drift of 10 %.
CONFIDENCE = 0.993
# A trend needs four batches of steps, and the end of a warm-up has to fit between them.
MIN_STEPS = 18
# A shorter end of the warm-up cannot be compared with the window; the very first step, which allocates, is left out.
WARMUP_END = 3
# There are enough batches for a t factor near the normal one, and enough steps in each to be nearly independent of the
# next.
MAX_BATCHES, STEPS_PER_BATCH = 10, 4
# This is the distance from the middle of a window's first third to the middle of its last, as a share of the window.
THIRD_TO_THIRD = 2 / 3


@dataclass(frozen=True)
class Interval:
    """A 95 % confidence interval of the rate, and what it was computed from."""

    mean: float
    half_width: float
    source: Literal["repeats", "steps"]
    count: int

    @property
    def share(self) -> float:
        """Half the interval over the mean."""
        return self.half_width / self.mean


def judge(
    repeats: Sequence[AnyRepeat],
    speeds: Sequence[Measurement],
    machines: Sequence[Machine],
    metric: str,
    of_task: Sequence[Doubt] = (),
) -> Stability:
    """Judge a run by its repeats and their rates, which are of the metric of that name.

    The verdict also counts what its machines say, and what its task has against it.
    """
    together, settled = drift(repeats), warmup_change(repeats)
    drifted = _drift_of_one(repeats) or together
    found = interval(speeds) if len(repeats) > 1 or _of_one_size(repeats[0]) else None
    disturbed = [reason for machine in machines for reason in disturbances(machine)]
    other_cores = [machine.other_cores for machine in machines if machine.other_cores is not None]
    against = [*of_task, *disturbed, *(_drifted(drifted) or _not_warm(settled)), *_held_up(repeats)]
    lacking = _missing(repeats, too_wide(found, metric) if found else None, together, settled)
    return Stability(
        metric=metric,
        verdict="unstable" if against else "unknown" if lacking else "stable",
        reasons=against or lacking,
        low=max(found.mean - found.half_width, 0.0) if found else None,
        high=found.mean + found.half_width if found else None,
        source=found.source if found else None,
        drift_ratio=drifted.ratio if drifted else None,
        warmup_ratio=settled.ratio if settled else None,
        other_cores=max(other_cores, default=None),
        sm_clocks=[clock for machine in machines for clock in sm_clocks(machine)],
    )


def drift(repeats: Sequence[AnyRepeat]) -> Estimate | None:
    """Estimate the ratio of step times in the window's last third to those in its first, as a logarithm.

    One trend is fitted to all repeats. None where steps are few or grow.
    """
    if not all(map(_of_one_size, repeats)) or min(len(repeat.measured) for repeat in repeats) < MIN_STEPS:
        return None
    return trend([_levels(repeat.measured, STEPS_PER_BATCH) for repeat in repeats], THIRD_TO_THIRD)


def warmup_change(repeats: Sequence[AnyRepeat]) -> Estimate | None:
    """Estimate the ratio of step times at the end of the warm-up to those in the window, as a logarithm.

    None where either is too short.
    """
    before = [[step for step in repeat.warmup if step[0].index < repeat.measured[0][0].index][1:] for repeat in repeats]
    window, warmup = min(len(repeat.measured) for repeat in repeats), min(map(len, before))
    if not all(map(_of_one_size, repeats)) or warmup < WARMUP_END or window < MIN_STEPS:
        return None
    # The window has to hold three pieces of that length.
    end = max(WARMUP_END, min(warmup, window) // 3)
    ends = [batch_levels(_times_s(steps[-end:]), 1)[0] for steps in before]
    return apart(ends, [_levels(repeat.measured, end) for repeat in repeats])


def interval(speeds: Sequence[Measurement], confidence: float = 0.95) -> Interval | None:
    """Return the interval over repeats by Student's t, or over batches of steps for a single repeat.

    An interval of a single repeat cannot know what another process would give.
    """
    if len(speeds) > 1:
        values = [speed.value for speed in speeds]
        return Interval(fmean(values), half_width(values, confidence), "repeats", len(values))
    steps = speeds[0].steps
    if len(steps) < MIN_STEPS:
        return None
    batches = batch_rates(steps, min(MAX_BATCHES, len(steps) // STEPS_PER_BATCH))
    return Interval(speeds[0].value, half_width(batches, confidence), "steps", len(batches))


def is_known_to(speeds: Sequence[Measurement], share: float, looks: int) -> bool:
    """Tell whether half the interval is less than this share of the rate; False where there is no interval yet.

    Repeated looks tend to stop where the interval happens to be narrow, so the error is shared among all `looks`.
    """
    found = interval(speeds, 1 - 0.05 / looks)
    return found is not None and found.share < share


def _of_one_size(repeat: AnyRepeat) -> bool:
    """Tell whether all steps do the same amount of work, so that their times can be compared."""
    return len({step[0].amount for step in (*repeat.warmup, *repeat.measured)}) == 1


def _drift_of_one(repeats: Sequence[AnyRepeat]) -> Estimate | None:
    """Return the largest drift that one of several repeats shows by itself, where the others hide it.

    The probability of error is shared among the repeats.
    """
    each = [found for repeat in repeats if (found := drift([repeat]))] if len(repeats) > 1 else []
    sure = [found for found in each if _counts(found, 1 - (1 - CONFIDENCE) / len(repeats))]
    return max(sure, key=lambda found: abs(found.value), default=None)


def _levels(steps: Sequence[Sequence[Sample]], size: int) -> list[float]:
    return batch_levels(_times_s(steps), min(MAX_BATCHES, len(steps) // size))


def _times_s(steps: Sequence[Sequence[Sample]]) -> list[float]:
    return [duration_s(slowest(step)) for step in steps]


def _counts(change: Estimate | None, confidence: float = CONFIDENCE) -> bool:
    """Tell whether a change is relevant and not explained by scatter."""
    return change is not None and abs(change.ratio - 1) > RELEVANT and change.differs(confidence)


def _drifted(found: Estimate | None) -> list[Doubt]:
    if not (found and _counts(found)):
        return []
    words = f"drift: steps of the window's last third took {found.ratio:.2f} times those of its first"
    return [Doubt(kind=DoubtKind.DRIFT, words=words)]


def _not_warm(found: Estimate | None) -> list[Doubt]:
    if not (found and _counts(found)):
        return []
    words = f"warm-up not settled: its last steps took {found.ratio:.2f} times those of the window"
    return [Doubt(kind=DoubtKind.WARMUP, words=words)]


def _held_up(repeats: Sequence[AnyRepeat]) -> list[Doubt]:
    share = min(share for repeat in repeats for share in timed_shares(repeat))
    if share >= 1 - RELEVANT:
        return []
    words = (
        f"host between steps: only {100 * share:.1f} % of the window was inside steps, between them the "
        "device waited for the host"
    )
    return [Doubt(kind=DoubtKind.HOST, words=words)]


def too_wide(found: Interval, metric: str) -> list[Doubt]:
    """Say why an interval is too wide to rely on; empty where it is not."""
    if found.share <= RELEVANT:
        return []
    said = (
        f"noise: the 95 % interval of {metric.replace('_per_', '/')} is ± {100 * found.share:.1f} %, "
        f"from {found.count} "
    )
    if found.source == "steps":
        return [Doubt(kind=DoubtKind.NOISE, words=f"{said}batches of steps: measure more")]
    needed = repeats_for(found.share / half_width_of_one(found.count), RELEVANT)
    enough = f"about {needed} would make it less than {RELEVANT:.0%}"
    words = f"{said}repeats: {enough if needed else 'find what makes them differ so much'}"
    return [Doubt(kind=DoubtKind.NOISE, words=words)]


def _missing(
    repeats: Sequence[AnyRepeat], wide: list[Doubt] | None, drifted: Estimate | None, settled: Estimate | None
) -> list[Doubt]:
    """Say what a verdict lacks; a drift that cannot be judged leaves the verdict open.

    `wide` is what is said of the interval, or None where there is no interval.
    """
    if not all(map(_of_one_size, repeats)):
        return [missing("sequences grew from step to step, so their times cannot be compared")]
    shortest = min(len(repeat.measured) for repeat in repeats)
    if drifted is None or wide is None:
        return [missing(f"too few steps to judge: {shortest} in the window, {MIN_STEPS} are needed")]
    if settled is None:
        return [missing(f"warm-up too short to judge: {WARMUP_END + 1} steps are needed")]
    shows = drifted.is_within(RULED_OUT, CONFIDENCE)
    hidden = f"steps scatter so much that a drift of {RULED_OUT:.0%} would not show: measure more steps"
    alone = "one repeat is one process, so how much processes differ is unknown: set measure.repeats=3"
    return [*wide, *[missing(hidden)] * (not shows), *[missing(alone)] * (len(repeats) == 1)]


def missing(words: str) -> Doubt:
    """Return what a verdict lacks."""
    return Doubt(kind=DoubtKind.MISSING, words=words)
