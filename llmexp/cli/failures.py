"""What failures make of a whole training at its expected speed, simulated for `llmexp plan --failures`."""

from __future__ import annotations

from llmexp.analysis.goodput import LEAST_SHARE, Interruptions, Simulated, simulated
from llmexp.answers.planned import PlannedFailures
from llmexp.cli.plan_answer import budget_cost, expected_rate
from llmexp.errors import ConfigError
from llmexp.record.digits import rounded
from llmexp.record.duration import duration
from llmexp.record.plan import RunPlan
from llmexp.registry import get_task
from llmexp.report.failure_words import FailureAssumptions
from llmexp.report.training_budget import SECONDS_AN_HOUR, TrainingBudget
from llmexp.sweep.cost import Cost


def failures_of(
    cost: Cost, budget: TrainingBudget | None, assumed: FailureAssumptions | None
) -> PlannedFailures | None:
    """Simulate a training with failures; None where none are assumed, or its speed is unknown.

    Raises ConfigError where no training is named, where a checkpoint's size is unknown, or where hardly any time would
    count.
    """
    if assumed is None:
        return None
    if budget is None:
        raise ConfigError("--failures: says nothing without a training: add --for, as in --for tokens=15e12")
    taken, rate = budget_cost(cost, budget), expected_rate(cost)
    if taken is None or not rate:
        return None
    of, size = _interruptions(cost.plan, assumed)
    best = max(of.best_interval_s, cost.plan.amount / rate)
    every = assumed.every_s or best
    if of.expected_share(every) < LEAST_SHARE:
        raise ConfigError(
            f"--failures: {cost.plan.name} on {cost.plan.devices} devices would get nowhere: less than "
            f"{LEAST_SHARE:.0%} of the time counts with a failure every {duration(of.mtbf_s)}, a restart of "
            f"{duration(of.restart_s)} and a checkpoint of {duration(of.checkpoint_s)} every {duration(every)}"
        )
    return _answer(of, size, (every, best), simulated(taken.time_s, of, every), (taken.time_s, rate))


def failure_words(found: PlannedFailures, assumed: FailureAssumptions, plan: RunPlan) -> str:
    """Say what was simulated in a line for the answer, one for the assumptions and one for where the time goes."""
    shares = (found.useful_share, found.useful_share_low, found.useful_share_high)
    share, low, high = (f"{100 * each:.3g}" for each in shares)
    size = f" of {_terabytes(found.checkpoint_bytes)}" if found.checkpoint_bytes else ""
    best = "best by Daly" if assumed.every_s is None else f"best by Daly: {duration(found.best_every_s)}"
    source = f": {assumed.source}" if assumed.source else ""
    checkpoints, lost, restarts = (
        f"{100 * each:.2g} %" for each in (found.checkpoint_share, found.lost_share, found.restart_share)
    )
    return "\n".join(
        [
            f"simulated: {share} % of the time counts ({low} to {high} in 9 of 10), "
            f"{rounded(found.tokens_per_s / plan.devices)} {plan.rate_unit} a device, {duration(found.time_s)}",
            f"a failure every {duration(found.mtbf_s)} ({rounded(assumed.mtbf_device_h)} device-hours{source})",
            f"checkpoint{size} in {duration(found.checkpoint_s)} every {duration(found.every_s)} ({best}), restart in "
            f"{duration(found.restart_s)}",
            f"{checkpoints} checkpoints, {lost} lost steps, {restarts} restarts, in {rounded(found.failures)} failures",
        ]
    )


def _interruptions(plan: RunPlan, assumed: FailureAssumptions) -> tuple[Interruptions, int | None]:
    """Return what the training meets, and the bytes of its checkpoint, where known."""
    size, checkpoint_s = get_task(plan.config.task.name).checkpoint_bytes(plan), assumed.checkpoint_s
    if assumed.checkpoint_bytes_per_s:
        if size is None:
            raise ConfigError(
                f"--failures: the size of a checkpoint of {plan.name} is not known: write checkpoint_s, for which it "
                "stops the training, in the place of checkpoint_bytes_per_s"
            )
        checkpoint_s = size / assumed.checkpoint_bytes_per_s
    mtbf_s = assumed.mtbf_device_h * SECONDS_AN_HOUR / plan.devices
    return Interruptions(mtbf_s, checkpoint_s or 0.0, assumed.restart_s), size


def _answer(
    of: Interruptions, size: int | None, every: tuple[float, float], found: Simulated, undisturbed: tuple[float, float]
) -> PlannedFailures:
    time_s, rate = undisturbed
    return PlannedFailures(
        mtbf_s=of.mtbf_s,
        restart_s=of.restart_s,
        checkpoint_bytes=size,
        checkpoint_s=of.checkpoint_s,
        every_s=every[0],
        best_every_s=every[1],
        useful_share=found.share,
        useful_share_low=found.low,
        useful_share_high=found.high,
        checkpoint_share=found.checkpoints,
        lost_share=found.lost,
        restart_share=found.restarts,
        failures=found.failures,
        tokens_per_s=rate * found.share,
        time_s=time_s / found.share,
        time_low_s=time_s / found.high,
        time_high_s=time_s / found.low,
        trials=found.trials,
    )


def _terabytes(size: int) -> str:
    return f"{rounded(size / 1e12)} TB" if size >= 1e12 else f"{rounded(size / 1e9)} GB"
