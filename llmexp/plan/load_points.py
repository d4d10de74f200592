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
    return [_point(number, rate, concurrency, serve) for number, (rate, concurrency) in enumerate(_loads(serve))]


def due_s(point: LoadPoint, serve: ServeConfig, seed: int, count: int) -> list[float]:
    """Return when so many requests of an open load are due, in seconds from its start."""
    if point.rate_per_s is None:
        return burst(count)
    # Each point has arrivals of its own, which are the same for every engine and repeat.
    return due_times(serve.arrivals, point.rate_per_s, count, seed * 1000 + point.number, serve.burstiness)


def _loads(serve: ServeConfig) -> Iterator[tuple[float | None, int | None]]:
    """Yield the rate and the concurrency of each load; a burst has neither."""
    yield from ((None if rate == MAX else rate, None) for rate in serve.rate)
    yield from ((None, concurrency) for concurrency in serve.concurrency)


def _point(number: int, rate_per_s: float | None, concurrency: int | None, serve: ServeConfig) -> LoadPoint:
    wanted = concurrency or (ceil(rate_per_s * WARMUP_S) if rate_per_s else serve.requests)
    return LoadPoint(
        number=number,
        requests=serve.requests,
        warmup=serve.warmup_requests or min(max(wanted, FEWEST_WARMUP), MOST_WARMUP),
        rate_per_s=rate_per_s,
        concurrency=concurrency,
    )
