"""Rates, means and times over the steps of a repeat, which the metrics are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Literal

from llmexp.analysis.quantity import Measurement
from llmexp.analysis.window import duration_s, slowest
from llmexp.record.flops import Flops
from llmexp.record.samples import StepSample
from llmexp.training.repeats import RunConstants, Step, TrainingRepeat

# Of measured steps, by which speed may be wrong.
SKIPPED_SHARE = 0.01


def rate_of(
    repeat: TrainingRepeat, facts: RunConstants, counter: Literal["positions", "real_tokens", "samples"]
) -> Measurement:
    """Return how much of what samples count all replicas did in a second."""
    return _over_time(
        repeat, [facts.counted_share * sum(getattr(sample, counter) for sample in step) for step in repeat.measured]
    )


def _over_time(repeat: TrainingRepeat, counts: Sequence[float]) -> Measurement:
    """Divide the work of all steps by the window's wall time, and the work of each step by its own time."""
    window_s = max(rank.window_wall_s for rank in repeat.ranks)
    rates = (count / duration_s(slowest(step)) for count, step in zip(counts, repeat.measured, strict=True))
    return Measurement(sum(counts) / window_s, tuple(rates))


def tflops_of(
    repeat: TrainingRepeat, facts: RunConstants, count: Callable[[StepSample, Flops], float | None]
) -> Measurement | None:
    """Return the TFLOP/s of one device.

    It is None where the plan does not know the model, the ranks saw another one, or a step cannot be counted.
    """
    if facts.flops is None or "no_flops" in repeat.ranks[0].what_ran:
        return None
    steps = [[count(sample, facts.flops) for sample in step] for step in repeat.measured]
    known = [sum(one for one in step if one is not None) for step in steps if None not in step]
    per_device = facts.counted_share / facts.world_size / 1e12
    return _over_time(repeat, [per_device * work for work in known]) if len(known) == len(steps) else None


def phase_time(repeat: TrainingRepeat, name: str) -> Measurement | None:
    """Return the seconds of a phase in a step, on its slowest rank; None where phases were not taken."""
    phases = [slowest(step).phases_s or {} for step in repeat.measured]
    return mean_of([phase[name] for phase in phases]) if all(name in phase for phase in phases) else None


def mean_of(steps: Sequence[float]) -> Measurement:
    """Return the mean of a value of each step, with the values."""
    return Measurement(fmean(steps), tuple(steps))


def loss_of(step: Step) -> Measurement:
    """Return a step's loss, as the mean over ranks."""
    return Measurement(fmean(sample.loss for sample in step))


def skipped_of(steps: Sequence[Step]) -> int | None:
    """Return how many of these steps updated nothing, their gradients having overflowed; None without a loss scale."""
    known = [step[0].skipped for step in steps]
    return None if None in known else known.count(True)


def skipped_words(repeats: Sequence[TrainingRepeat]) -> str:
    """Say how many steps of the window updated nothing, where that is more than the share that speed may be wrong by.

    Such a step costs less than others. A scale that has settled overflows once in a thousand steps or more.
    """
    of_repeats = [(skipped_of(repeat.measured) or 0, len(repeat.measured)) for repeat in repeats]
    skipped, steps = max(of_repeats, key=lambda each: each[0] / each[1])
    if skipped <= SKIPPED_SHARE * steps:
        return ""
    return (
        f"skipped: {skipped} of {steps} measured steps had gradients that overflowed, and updated nothing, which takes "
        "less time: set a smaller precision.initial_scale_power, or more measure.warmup_steps"
    )
