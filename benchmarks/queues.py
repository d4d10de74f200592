"""Simulated servers under an open load, whose capacity is known; times are in mean service times of a server alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace
from itertools import islice, repeat
from math import log, sqrt

from llmexp.serving.analysis.backlog import Load
from llmexp.serving.plan.arrivals import Process, due_times

# The squared coefficient of variation of the gaps of gamma arrivals, which come in bursts.
BURSTINESS = 4.0
# The times that the rate of a made-up trace changes.
SWINGS = 8
# The coefficient of variation of lognormal services.
TAIL = 3.0
Draws = Callable[[random.Random], Iterator[float]]


def constant(draw: random.Random) -> Iterator[float]:
    """Yield numbers that are all 1."""
    return repeat(1.0)


def exponential(draw: random.Random) -> Iterator[float]:
    """Yield numbers with a mean of 1 and a coefficient of variation of 1."""
    while True:
        yield draw.expovariate(1.0)


def lognormal(draw: random.Random) -> Iterator[float]:
    """Yield lognormal numbers with a mean of 1 and a coefficient of variation of TAIL."""
    sigma = sqrt(log(1 + TAIL**2))
    while True:
        yield draw.lognormvariate(-(sigma**2) / 2, sigma)


def pareto(index: float) -> Draws:
    """Return draws of Pareto's numbers with a mean of 1; their variance is finite for an index above 2."""

    def draws(draw: random.Random) -> Iterator[float]:
        while True:
            yield draw.paretovariate(index) * (index - 1) / index

    return draws


ARRIVALS: dict[str, Process] = {"constant": "constant", "Poisson": "poisson", "gamma": "gamma"}


@dataclass(frozen=True)
class Servers:
    """Servers that each take one request at a time, first come first served; their service times have a mean of 1."""

    name: str
    service: Draws
    count: int = 1

    @property
    def capacity_per_s(self) -> float:
        """The requests a second that they complete at most."""
        return float(self.count)

    def latencies_s(self, due_s: list[float], draw: random.Random) -> list[float]:
        """Return the time from when each request was due to its end."""
        free_s, latencies = [0.0] * self.count, []
        for due, service in zip(due_s, self.service(draw), strict=False):
            end = max(free_s[0], due) + service
            heapreplace(free_s, end)
            latencies.append(end - due)
        return latencies


@dataclass(frozen=True)
class Batching:
    """A server with continuous batching: requests join and leave between steps, each of which takes longer with more.

    A step of a batch of b takes 1 + b * growth over TOKENS; a request stays for about TOKENS steps, one for each token
    of its output.
    """

    name: str
    lengths: Draws
    slots: int
    growth: float
    TOKENS = 50

    @property
    def capacity_per_s(self) -> float:
        """The requests a second that leave while all slots are taken."""
        return self.slots / (1 + self.slots * self.growth)

    def latencies_s(self, due_s: list[float], draw: random.Random) -> list[float]:
        """Return the time from when each request was due to its end."""
        lengths = [max(1, round(self.TOKENS * length)) for length in islice(self.lengths(draw), len(due_s))]
        ends_s, batch = [0.0] * len(due_s), list[tuple[int, int]]()
        now_s, step, coming = 0.0, 0, 0
        while coming < len(due_s) or batch:
            if not batch:
                now_s = max(now_s, due_s[coming])
            while coming < len(due_s) and due_s[coming] <= now_s and len(batch) < self.slots:
                heappush(batch, (step + lengths[coming], coming))
                coming += 1
            step_s, steps = (1 + len(batch) * self.growth) / self.TOKENS, batch[0][0] - step
            if coming < len(due_s) and len(batch) < self.slots:
                # Whoever comes meanwhile joins at the end of a step.
                steps = min(steps, max(1, int((due_s[coming] - now_s) / step_s) + 1))
            step, now_s = step + steps, now_s + steps * step_s
            while batch and batch[0][0] == step:
                ends_s[heappop(batch)[1]] = now_s
        return [end - due for end, due in zip(ends_s, due_s, strict=True)]


Server = Servers | Batching
SERVERS: tuple[Server, ...] = (
    Servers("M/M/1", exponential),
    Servers("M/D/1", constant),
    Servers("M/M/8", exponential, 8),
    Batching("batching, 16 slots", constant, 16, 0.1),
    Batching("batching, 64 slots", constant, 64, 0.05),
    Batching("batching, 16 slots, lengths vary", exponential, 16, 0.1),
    Batching("batching, 64 slots, lengths vary", exponential, 64, 0.05),
)


# Services that vary as much as requests of real traffic do, and more: most are short, and a few take very long.
HEAVY_TAILED: tuple[Server, ...] = (
    Servers("one at a time, lognormal services", lognormal),
    Servers("one at a time, Pareto services", pareto(2.2)),  # hardly any sample shows their variance
    Servers("eight at a time, lognormal services", lognormal, 8),
    Batching("batching, 16 slots, lognormal lengths", lognormal, 16, 0.1),
)

# Services without a variance: no load is long enough to show how long the longest are. Outputs of bounded length have
# one.
BOUNDLESS = Servers("one at a time, Pareto services without a variance", pareto(1.5))


def rising_and_falling(gap_s: float, requests: int, draw: random.Random) -> list[float]:
    """Return when requests of a trace are due whose rate is a half and one and a half of its mean, eight times over."""
    span_s, due_s = gap_s * requests, list[float]()
    for _ in range(requests):
        since_s = due_s[-1] if due_s else 0.0
        factor = 1.5 if int(SWINGS * since_s / span_s) % 2 else 0.5
        due_s.append(since_s + draw.expovariate(factor / gap_s))
    return due_s


def arrive(arrivals: str, per_s: float, requests: int, draw: random.Random) -> list[float]:
    """Return when requests are due, as the load client sends them."""
    return due_times(ARRIVALS[arrivals], per_s, requests, draw.getrandbits(32), 1 / BURSTINESS)


def load(server: Server, arrivals: str, utilization: float, requests: int, draw: random.Random) -> Load:
    """Return the requests of one load point: their arrivals bring `utilization` times what the server can do."""
    due_s = arrive(arrivals, utilization * server.capacity_per_s, requests, draw)
    return Load(due_s, server.latencies_s(due_s, draw))
