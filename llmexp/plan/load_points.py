"""The load points of a run of task=serve, in the order in which they are measured, and when their requests are due."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from llmexp.plan.arrivals import burst, due_times
from llmexp.plan.serving_plan import LoadPoint
from llmexp.schema.serving import MAX, ServeConfig

MOST_WARMUP, FEWEST_WARMUP = 32, 4
# Of an open load, so many seconds of it warm the server up.
WARMUP_S = 2.0


def load_points(serve: ServeConfig) -> list[LoadPoint]:
    """Return a point for each rate and each concurrency."""
    return [
        LoadPoint(
            number=number, requests=serve.requests, **load, warmup=serve.warmup_requests or _warmup(serve, **load)
        )
        for number, load in enumerate(_loads(serve))
    ]


def due_s(point: LoadPoint, serve: ServeConfig, seed: int, count: int) -> list[float]:
    """Return when so many requests of an open load are due, in seconds from its start."""
    if point.rate_per_s is None:
        return burst(count)
    # Each point has arrivals of its own, which are the same for every engine and repeat.
    return due_times(serve.arrivals, point.rate_per_s, count, seed * 1000 + point.number, serve.burstiness)


def _loads(serve: ServeConfig) -> Iterator[dict[str, float | int | None]]:
    for rate in serve.rate:
        yield {"rate_per_s": None if rate == MAX else rate, "concurrency": None}
    for concurrency in serve.concurrency:
        yield {"rate_per_s": None, "concurrency": concurrency}


def _warmup(serve: ServeConfig, rate_per_s: float | None, concurrency: int | None) -> int:
    if concurrency:
        wanted = concurrency
    elif rate_per_s:
        wanted = ceil(rate_per_s * WARMUP_S)
    else:
        wanted = serve.requests
    return min(max(wanted, FEWEST_WARMUP), MOST_WARMUP)
