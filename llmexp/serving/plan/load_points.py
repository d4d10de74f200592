"""The load points of a run of task=serve, in the order in which they are measured, and when their requests are due."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from llmexp.schema.section import MAX
from llmexp.serving.config.run import ServeConfig
from llmexp.serving.plan.arrivals import RisingRate, burst, due_times
from llmexp.serving.plan.request_trace import load_trace
from llmexp.serving.plan.serving_plan import LoadPoint

MOST_WARMUP, FEWEST_WARMUP = 32, 4
# Of an open load, so many seconds of it warm the server up.
WARMUP_S = 2.0
# No probe of a search gets longer than serve.requests by more requests than these.
MOST_OF_PROBE = 10_000


def load_points(serve: ServeConfig) -> list[LoadPoint]:
    """Return a point for each rate and each concurrency, one for the trace, and one for the ramp.

    Raises ConfigError where the trace cannot be read.
    """
    return [_numbered(number, load, serve) for number, load in enumerate(_loads(serve))]


def probe_of(serve: ServeConfig, number: int, probe: int, rate_per_s: float) -> LoadPoint:
    """Return the load point of a search's probe, which has its number behind those that were planned.

    A load is judged by what its requests do over time: where they come fast, more of them are sent.
    """
    lasting = min(ceil(rate_per_s * serve.search.least_s), MOST_OF_PROBE) if serve.search else 0
    requests = max(serve.requests, lasting)
    load = LoadPoint(number=number, requests=requests, warmup=0, rate_per_s=rate_per_s, probe=probe)
    return _numbered(number, load, serve)


def due_s(point: LoadPoint, serve: ServeConfig, seed: int, count: int) -> list[float]:
    """Return when so many requests of an open load are due, in seconds from its start."""
    if point.follows == "trace" and serve.trace:
        return [request.due_s for request in load_trace(serve.trace, serve.requests).requests[:count]]
    # Each point has arrivals of its own, which are the same for every engine and repeat.
    arrivals_seed = seed * 1000 + point.number
    if point.follows == "ramp" and serve.ramp:
        ramp = RisingRate(serve.ramp.first_per_s, serve.ramp.last_per_s, point.requests)
        return ramp.due_times(serve.arrivals, arrivals_seed, serve.burstiness)[:count]
    if point.rate_per_s is None:
        return burst(count)
    return due_times(serve.arrivals, point.rate_per_s, count, arrivals_seed, serve.burstiness)


def _loads(serve: ServeConfig) -> Iterator[LoadPoint]:
    """Yield the loads, whose numbers and warm-ups are not known yet; a burst has no rate."""
    load = LoadPoint(number=0, requests=serve.requests, warmup=0, turns=serve.turns)
    for rate in serve.rate:
        yield load.model_copy(update={"rate_per_s": None if rate == MAX else rate})
    for concurrency in serve.concurrency:
        yield load.model_copy(update={"concurrency": concurrency})
    if serve.trace:
        trace = load_trace(serve.trace, serve.requests)
        of_trace = {"requests": len(trace.requests), "rate_per_s": trace.rate_per_s, "follows": "trace"}
        yield load.model_copy(update=of_trace)
    if serve.ramp:
        mean_per_s = (serve.ramp.first_per_s + serve.ramp.last_per_s) / 2
        yield load.model_copy(update={"rate_per_s": mean_per_s, "follows": "ramp"})


def _numbered(number: int, load: LoadPoint, serve: ServeConfig) -> LoadPoint:
    wanted = load.concurrency or (ceil(load.rate_per_s * WARMUP_S) if load.rate_per_s else serve.requests)
    warmup = serve.warmup_requests or min(max(wanted, FEWEST_WARMUP), MOST_WARMUP)
    # The warm-up of a trace is its first requests once more, with other tokens.
    most = load.requests if load.follows == "trace" else warmup
    return load.model_copy(update={"number": number, "warmup": min(warmup, most)})
