"""`python -m benchmarks trust` says how often each verdict is wrong, over simulated runs whose truth is known."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from statistics import harmonic_mean
from types import SimpleNamespace
from typing import Any

from benchmarks.figure import Figure
from benchmarks.rates import rate
from benchmarks.simulated import Protocol, Scatter, Simulated
from benchmarks.trust_batches import batch_verdicts
from benchmarks.trust_contention import contention_verdicts
from benchmarks.trust_equal_loss import equal_loss_verdicts
from benchmarks.trust_memory import memory_verdicts
from benchmarks.trust_order import order_verdicts
from benchmarks.trust_predictions import prediction_verdicts
from benchmarks.trust_serving import serving_verdicts
from benchmarks.trust_sets import set_verdicts
from benchmarks.trust_training import training_verdicts
from llmexp.analysis.inference import log_ratio
from llmexp.analysis.quantity import Measurement
from llmexp.analysis.stability import is_known_to
from llmexp.record.result import Metric, Stability
from llmexp.report.equivalence import equivalence
from llmexp.training.report.conclusion import ALIKE, FASTER, SLOWER, conclusion

PAPER, FIRST_RUN, QUICK = Protocol("paper", 3, 30, 100), Protocol("first_run", 3, 5, 20), Protocol("quick", 1, 5, 20)
# Quiet machines, with steps as CPUs and GPUs show them: each depends on the one before it by as much as was measured.
QUIET = (Scatter(0.03, 0.25, 0.005), Scatter(0.05, 0.5, 0.01), Scatter(0.05, 0.78, 0.01))
# Limits in percent for the effects that a protocol is meant to detect: false alarms at most, and finds at least.
FALSE_ALARMS, FOUND = 2.0, 95.0
DRIFT = 0.1
# The number of methods besides Naive in the first run's table.
METHODS = 5
Pair = tuple[tuple[Metric, Stability], tuple[Metric, Stability]]


def trust(folder: Path, tries: int = 1000) -> Iterator[Figure]:
    """Yield all rates in percent, each with its limit; nothing is left in `folder`."""
    for protocol in (PAPER, FIRST_RUN, QUICK):
        for scatter in QUIET:
            yield from _of_one_run(protocol, scatter, tries)
    for protocol in (PAPER, FIRST_RUN):
        for scatter in QUIET:
            yield from _of_pairs(protocol, protocol, scatter, tries)
    yield from _of_pairs(QUICK, FIRST_RUN, QUIET[1], tries)
    for scatter in QUIET:
        yield from _of_tables(FIRST_RUN, scatter, tries)
    yield from _of_stopping(tries)
    yield from serving_verdicts(tries)
    yield from set_verdicts(tries // 2)
    yield from order_verdicts(tries)
    yield from contention_verdicts(tries // 2)
    yield from equal_loss_verdicts(tries // 2)
    yield from batch_verdicts(tries)
    yield from training_verdicts()
    yield from memory_verdicts()
    yield from prediction_verdicts(tries)
    yield from _of_microbenchmarks(folder, tries // 5)
    yield from _of_answers(tries // 50)


def _of_one_run(protocol: Protocol, scatter: Scatter, tries: int) -> Iterator[Figure]:
    quiet = _verdicts(Simulated(protocol, scatter), tries)
    drifting = _verdicts(Simulated(protocol, scatter, drift=DRIFT), tries)
    case, found_floor = f"{protocol.name}, {scatter}", FOUND if protocol is PAPER else None
    yield rate(f"quiet run unstable: {case}", quiet.count("unstable"), tries, limit=FALSE_ALARMS)
    yield rate(f"{DRIFT:.0%} drift unstable: {case}", drifting.count("unstable"), tries, floor=found_floor)
    yield rate(f"{DRIFT:.0%} drift stable: {case}", drifting.count("stable"), tries, limit=100 - FOUND)


def _verdicts(simulated: Simulated, tries: int) -> list[str]:
    draw = random.Random(0)
    return [simulated.run(draw)[1].verdict for _ in range(tries)]


def _of_pairs(first: Protocol, second: Protocol, scatter: Scatter, tries: int) -> Iterator[Figure]:
    """Rate the answers of `reproduce` and `compare` on two speeds.

    There are limits for equal speeds, and for those at the margin or beyond it.
    """
    case = f"{first.name}{'' if first is second else f' and {second.name}'}, {scatter}"
    for speed, answer, limit in (
        (1.0, "different", FALSE_ALARMS),
        (0.95, "same", FALSE_ALARMS),
        (0.9, "same", FALSE_ALARMS),
    ):
        pairs = _pairs(Simulated(first, scatter), Simulated(second, scatter, speed), tries)
        answers: list[str] = [equivalence(a, b, (of_a, of_b), "tokens_per_s").answer for (a, of_a), (b, of_b) in pairs]
        yield rate(f"speed x {speed:g} called {answer}: {case}", answers.count(answer), tries, limit=limit)
        told = "same" if speed == 1 else "different"
        yield rate(f"speed x {speed:g} called {told}: {case}", answers.count(told), tries)
    held = sum(_holds(a, b, 0.9) for (a, _), (b, _) in pairs)
    yield rate(f"95 % interval of a ratio holds it: {case}", held, tries, floor=93)


def _pairs(first: Simulated, second: Simulated, tries: int) -> list[Pair]:
    draw = random.Random(1)
    return [(first.run(draw), second.run(draw)) for _ in range(tries)]


def _holds(a: Metric, b: Metric, truth: float) -> bool:
    found = log_ratio(a, b)
    assert found is not None
    low, high = found.ratio_interval()
    return low < truth < high


def _of_tables(protocol: Protocol, scatter: Scatter, tries: int) -> Iterator[Figure]:
    """Rate the line beside Naive, in tables of Naive and METHODS others.

    The others are all as fast, or all slower by three tenths.
    """
    case = f"{METHODS} methods, {protocol.name}, {scatter}"
    equal, slower = (
        _lines(Simulated(protocol, scatter), Simulated(protocol, scatter, speed), tries) for speed in (1.0, 0.7)
    )
    apart = sum(SLOWER in line or FASTER in line for line in equal)
    yield rate(f"table that tells equal methods from Naive: {case}", apart, tries, limit=FALSE_ALARMS)
    yield rate(
        f"table that calls any faster at speed x 0.7: {case}",
        sum(FASTER in line for line in slower),
        tries,
        limit=FALSE_ALARMS,
    )
    yield rate(f"table that calls all slower at speed x 0.7: {case}", sum(ALIKE not in line for line in slower), tries)


def _lines(naive: Simulated, other: Simulated, tries: int) -> list[str]:
    draw, lines = random.Random(3), list[str]()
    for _ in range(tries):
        rows: list[Any] = [_row("Naive", *naive.run(draw)), *(_row("F", *other.run(draw)) for _ in range(METHODS))]
        lines += conclusion(rows)
    return lines


def _row(method: str, speed: Metric, judged: Stability) -> SimpleNamespace:
    """Return the fields of a table's row that the conclusion needs."""
    return SimpleNamespace(
        method=method, is_control=False, comparison_key={}, result=SimpleNamespace(stability=judged), rate=speed
    )


def _of_stopping(tries: int) -> Iterator[Figure]:
    """Rate adaptive stopping within a repeat.

    The rate says how often the speed at the stop is as near the truth as was asked for.
    """
    from llmexp.launchers.training.stopping import blocks
    from llmexp.training.config import TrainingMeasureConfig

    protocol = TrainingMeasureConfig.model_validate(
        {
            "name": "adaptive",
            "warmup_steps": 30,
            "steps": 400,
            "repeats": 1,
            "profile": False,
            "timeout_s": 1,
            "no_progress_timeout_s": 1,
        }
        | {"stop_at_interval_share": 0.01}
    )
    for scatter in (Scatter(0.03), Scatter(0.03, 0.25)):
        draw, ends = random.Random(2), [block.stop - protocol.warmup_steps for block in blocks(protocol)]
        stopped = [_stop(scatter, ends, draw, protocol.stop_at_interval_share or 0.0) for _ in range(tries)]
        near = sum(abs(speed - 1) < (protocol.stop_at_interval_share or 0.0) for speed, early in stopped if early)
        early = sum(early for _, early in stopped)
        yield rate(f"stopped within 1 % of the truth: {scatter}", near, max(early, 1), floor=93)


def _stop(scatter: Scatter, ends: list[int], draw: random.Random, share: float) -> tuple[float, bool]:
    deviations = scatter.deviations(draw)
    times_s: list[float] = []
    for look, end in enumerate(ends):
        times_s += [1 + next(deviations) for _ in range(end - len(times_s))]
        rates = tuple(1 / time_s for time_s in times_s)
        speed = Measurement(harmonic_mean(rates), rates)
        if look < len(ends) - 1 and is_known_to([speed], share, len(ends) - 1):
            return speed.value, True
    return speed.value, False


def _of_microbenchmarks(folder: Path, tries: int) -> Iterator[Figure]:
    """Rate the checks of microbenchmarks; the module imports torch, which the other suites do without."""
    from benchmarks.trust_micro import micro_verdicts

    yield from micro_verdicts(folder, tries)


def _of_answers(tries: int) -> Iterator[Figure]:
    """Rate the verdicts on servers' answers, which imports torch too."""
    from benchmarks.trust_quality import quality_verdicts

    yield from quality_verdicts(tries)
