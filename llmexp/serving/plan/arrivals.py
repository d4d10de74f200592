"""When the requests of an open load are due, in seconds from its start; no time depends on any answer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise
from random import Random
from typing import Literal

from llmexp.errors import ConfigError

Process = Literal["constant", "poisson", "gamma"]
PROCESSES: tuple[Process, ...] = ("constant", "poisson", "gamma")


def burst(requests: int) -> list[float]:
    """Return the times of requests that are all due at once, as the paper sends its thousand."""
    return [0.0] * requests


def due_times(process: Process, per_s: float, requests: int, seed: int, shape: float = 1.0) -> list[float]:
    """Return when so many requests are due: the first at once, the last (requests - 1) / per_s seconds later.

    So the load has the rate that it was asked to have, whatever its gaps are: forty Poisson requests left to chance
    come at 0.8 to 1.3 times their rate, and any verdict would be on another rate than it names. In between Poisson
    requests are spread as those of a Poisson process that had as many in this time. Gaps of `gamma` have the shape k,
    so that their coefficient of variation is about 1 / sqrt(k): below 1 it makes bursts, above 1 it is smoother than
    Poisson, and 1 is Poisson.

    Raises ConfigError where the rate or the shape is not a positive number, the process is unknown, or the shape is so
    small that gaps come out as 0 only.
    """
    _check_positive("rate", per_s)
    _check_positive("shape", shape)
    if process not in PROCESSES:
        raise ConfigError(f"arrivals={process}: valid are {', '.join(PROCESSES)}")
    if process == "constant":
        return [place / per_s for place in range(requests)]
    if requests < 2:
        return [0.0] * requests
    places = list(accumulate(islice(_gaps(process, Random(seed), shape), requests - 1), initial=0.0))
    if not places[-1]:
        raise ConfigError(f"shape={shape:g}: all {requests} requests would be due at once; a larger shape spreads them")
    return [place / places[-1] * (requests - 1) / per_s for place in places]


def listed(times_s: Sequence[float]) -> list[float]:
    """Return recorded times from their first on; raises ConfigError where one lies before its predecessor."""
    for place, (before, after) in enumerate(pairwise(times_s), 2):
        if not after >= before:
            raise ConfigError(f"time {place} of the list, {after:g} s, lies before the one above it, {before:g} s")
    return [time_s - times_s[0] for time_s in times_s]


@dataclass(frozen=True)
class RisingRate:
    """A rate that changes evenly with time, from the first of so many requests to the last, so that a load crosses
    saturation; after them it stays. It may fall as well.
    """

    first_per_s: float
    last_per_s: float
    requests: int

    def __post_init__(self) -> None:
        for rate in (self.first_per_s, self.last_per_s):
            _check_positive("rate", rate)

    def per_s(self, expected: float) -> float:
        """Return the rate at which so many requests have been due on average.

        With r the first rate and a the change in a second, r t + a t**2 / 2 are due by then, and the rate is r + a t.
        """
        first, last = self.first_per_s**2, self.last_per_s**2
        return math.sqrt(first + (last - first) * min(expected / self.requests, 1.0))

    def at_s(self, expected: float) -> float:
        """Return the second by which so many requests are due on average."""
        inside = min(expected, self.requests)
        return 2 * inside / (self.first_per_s + self.per_s(inside)) + (expected - inside) / self.last_per_s

    def due_times(self, process: Process, seed: int, shape: float = 1.0) -> list[float]:
        """Return when the requests are due: arrivals at one a second, on a clock that runs as fast as the rate is.

        Raises ConfigError as the other due_times does.
        """
        return [self.at_s(expected) for expected in due_times(process, 1.0, self.requests, seed, shape)]


def _check_positive(name: str, value: float) -> None:
    if not (value > 0 and math.isfinite(value)):
        raise ConfigError(f"{name}={value:g}: requests arrive at a {name} that is a number above 0")


def _gaps(process: Process, random: Random, shape: float) -> Iterator[float]:
    """Yield gaps without end, with a mean of 1."""
    while True:
        yield random.expovariate(1.0) if process == "poisson" else random.gammavariate(shape, 1 / shape)
