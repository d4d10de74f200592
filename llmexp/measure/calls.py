"""Time a call again and again: warm up, choose the calls of a sample, and take samples by the device's clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from math import ceil

from llmexp.measure.clock import Clock, Mark

# So many are taken before the time is looked at again: with fewer, percentiles are the ends of two or three values.
FEWEST_SAMPLES = 5
SHORTEST_S = 1e-9
Call = Callable[[], object]
CallRecord = Callable[[Sequence[Call]], Call | None]


@dataclass(frozen=True)
class CallProtocol:
    """How a point is sampled; see MicroMeasureConfig."""

    samples: int
    warmup_calls: int
    min_sample_s: float
    limit_s: float
    warmup_limit_s: float


@dataclass(frozen=True)
class Timed:
    """The time of a call in seconds, a value a sample, each the mean of `calls` calls."""

    times_s: Sequence[float]
    calls: int
    recorded: bool = False
    """The calls of a sample were launched at once."""


def time_calls(
    calls: Sequence[Call],
    clock: Clock,
    protocol: CallProtocol,
    slowest: Callable[[float], float],
    record: CallRecord | None = None,
) -> Timed:
    """Time `calls`, which do the same work on different inputs, in turn.

    `slowest` returns the largest of the ranks' values, so that all ranks take the same number of samples, which end
    when the slowest has none left or no time. It also makes the ranks begin together. `record` makes one call of
    several, or None where it cannot; it is for calls that are shorter than a sample, whose launches may take longer.
    """
    turn = cycle(calls)
    estimate_s = _warm_up(turn, clock, protocol, slowest)
    per_sample = max(1, ceil(protocol.min_sample_s / estimate_s))
    recorded = _recorded(calls, per_sample, record) if record and per_sample > 1 else []
    turn, of_sample = (cycle(recorded), 1) if recorded else (turn, per_sample)
    times_s: list[float] = []
    # Beside other programs calls may take far longer than they did at first.
    while len(times_s) < protocol.samples and slowest(sum(times_s) * per_sample) < protocol.limit_s:
        marks = [_sample(turn, of_sample, clock) for _ in range(FEWEST_SAMPLES)]
        clock.synchronize()
        times_s += [end.seconds_since(begin) / per_sample for begin, end in marks]
    return Timed(times_s, per_sample, bool(recorded))


def _recorded(calls: Sequence[Call], per_sample: int, record: CallRecord) -> list[Call]:
    """Return recordings of `per_sample` calls each that together take every input; none where one cannot be made."""
    turn = cycle(calls)
    samples = ([next(turn) for _ in range(per_sample)] for _ in range(ceil(len(calls) / per_sample)))
    made = [record(sample) for sample in samples]
    return [one for one in made if one] if all(made) else []


def _sample(turn: Iterator[Call], calls: int, clock: Clock) -> tuple[Mark, Mark]:
    begin = clock.mark()
    for _ in range(calls):
        next(turn)()
    return begin, clock.mark()


def _warm_up(turn: Iterator[Call], clock: Clock, protocol: CallProtocol, slowest: Callable[[float], float]) -> float:
    """Call as often as the protocol says, or less often where calls are slow; return a call's seconds on all ranks."""
    first_s = slowest(_mean_s(turn, clock, 1))
    fitting = int(protocol.warmup_limit_s / first_s)
    warm_up = max(1, min(protocol.warmup_calls, fitting))
    return slowest(_mean_s(turn, clock, warm_up))


def _mean_s(turn: Iterator[Call], clock: Clock, calls: int) -> float:
    """Return the mean seconds of a call by the host's clock, the device's work included."""
    begin_s = time.perf_counter()
    for _ in range(calls):
        next(turn)()
    clock.synchronize()
    return max((time.perf_counter() - begin_s) / calls, SHORTEST_S)
