"""How often the verdicts on loads of a server are wrong, over simulated servers whose capacity is known."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from statistics import fmean, quantiles

from benchmarks.conversations import Turns, talks
from benchmarks.figure import Figure
from benchmarks.interval import Interval
from benchmarks.queues import ARRIVALS, BOUNDLESS, HEAVY_TAILED, SERVERS, Server, load, rising_and_falling
from benchmarks.rates import rate
from llmexp.serving.analysis.attainment import SHARE, attainment, fewest_requests
from llmexp.serving.analysis.backlog import Load
from llmexp.serving.analysis.rate_search import Found, RateSearch
from llmexp.serving.analysis.saturation import saturation
from llmexp.serving.analysis.saturation_point import holds

# Limits in percent.
WRONG, WRONG_OF_SEARCHES = 2.0, 5.0
# Of verdicts on several repeats together, and on conversations.
WRONG_OF_OTHERS = 5.0
CARRIED, OVERLOAD = 0.8, 1.25
# Shares of requests that keep the objective in a long load, of which too few and enough do.
TOO_FEW, ENOUGH = 0.8, 0.98
LONG = 40_000
TURNS = (Turns(3), Turns(8, 2.0))
# An interval of a search that leaves out the capacity by more than this ratio is wrong.
FAR = 1.25


def serving_verdicts(tries: int = 1000) -> Iterator[Figure]:
    """Yield all rates in percent, each with its limit."""
    yield from loads_alone(SERVERS, tries)
    yield from loads_alone(HEAVY_TAILED, tries)
    yield from loads_alone([BOUNDLESS], tries, limit=None)
    for server in SERVERS:
        for arrivals in ("Poisson", "gamma"):
            for requests in (100, 300, 1000):
                yield from _of_objectives(server, arrivals, requests, tries // 2)
    yield from other_loads(max(tries // 5, 1))
    for server in SERVERS:
        for requests in (100, 300, 1000):
            yield from _of_searches(server, requests, max(tries // 10, 1))


def loads_alone(servers: Sequence[Server], tries: int, limit: float | None = WRONG) -> Iterator[Figure]:
    """Rate the verdicts on single loads of some servers, with a limit for wrong ones."""
    for server in servers:
        for arrivals in ARRIVALS:
            for requests in (30, 100, 300, 1000):
                yield from _of_saturation(server, arrivals, requests, tries, limit)


def other_loads(tries: int) -> Iterator[Figure]:
    """Rate the verdicts on repeats that are judged together, on conversations, and what they would be on traces."""
    for server in SERVERS:
        for arrivals in ("Poisson", "gamma"):
            for repeats, requests in ((3, 30), (3, 100), (5, 100), (3, 300)):
                make = partial(_repeats, server, arrivals, (repeats, requests))
                yield from _rates(f"{repeats} repeats: {server.name}, {arrivals}, {requests}", make, tries)
        for turns in TURNS:
            for conversations in (100, 300, 1000):
                make = partial(_conversations, server, turns, conversations)
                yield from _rates(f"{turns}: {server.name}, {conversations}", make, tries)
            yield from _of_objectives_in_turns(server, turns, 300, tries)
        for requests in (300, 1000):
            make = partial(_changing, server, requests)
            yield from _rates(f"rate that changes: {server.name}, {requests}", make, tries, limit=None)


def _rates(
    case: str,
    make: Callable[[float, random.Random], list[Load]],
    tries: int,
    limit: float | None = WRONG_OF_OTHERS,
) -> Iterator[Figure]:
    draw = random.Random(tries)
    for utilization, right, wrong in ((CARRIED, "kept_up", "overloaded"), (OVERLOAD, "overloaded", "kept_up")):
        found: list[str] = [saturation(make(utilization, draw)).verdict for _ in range(tries)]
        for verdict, most in ((right, None), (wrong, limit)):
            yield rate(f"load x {utilization:g} called {verdict}, {case}", found.count(verdict), tries, limit=most)


def _repeats(
    server: Server, arrivals: str, size: tuple[int, int], utilization: float, draw: random.Random
) -> list[Load]:
    repeats, requests = size
    return [load(server, arrivals, utilization, requests, draw) for _ in range(repeats)]


def _conversations(server: Server, turns: Turns, number: int, utilization: float, draw: random.Random) -> list[Load]:
    return [talks(server, turns, utilization, number, draw).conversations]


def _changing(server: Server, requests: int, utilization: float, draw: random.Random) -> list[Load]:
    due_s = rising_and_falling(1 / (utilization * server.capacity_per_s), requests, draw)
    return [Load(due_s, server.latencies_s(due_s, draw))]


def _of_objectives_in_turns(server: Server, turns: Turns, number: int, tries: int) -> Iterator[Figure]:
    """Rate `kept` on a limit of the latency that too few requests of conversations keep."""
    long = talks(server, turns, CARRIED, LONG // turns.number, random.Random(0)).latencies_s
    allowed_s = quantiles(long[len(long) // 10 :], n=100)[round(100 * TOO_FEW) - 1]
    draw, found = random.Random(number), 0
    for _ in range(tries):
        one = talks(server, turns, CARRIED, number, draw)
        kept = attainment([[late / allowed_s for late in one.latencies_s]])
        found += holds([saturation([one.conversations]).verdict, kept.verdict]) is True
    name = f"objective that {TOO_FEW:.0%} keep called kept, {turns}: {server.name}, {number}"
    yield rate(name, found, tries, limit=WRONG_OF_OTHERS)


def _of_saturation(server: Server, arrivals: str, requests: int, tries: int, limit: float | None) -> Iterator[Figure]:
    case, draw = f"{server.name}, {arrivals}, {requests}", random.Random(requests)
    for utilization, verdict, most in (
        (0.5, "kept_up", None),
        (CARRIED, "kept_up", None),
        (CARRIED, "overloaded", limit),
        (OVERLOAD, "kept_up", limit),
        (OVERLOAD, "overloaded", None),
        (2.0, "overloaded", None),
    ):
        loads = (load(server, arrivals, utilization, requests, draw) for _ in range(tries))
        found = sum(saturation([one]).verdict == verdict for one in loads)
        yield rate(f"load x {utilization:g} called {verdict}: {case}", found, tries, limit=most)


def _of_objectives(server: Server, arrivals: str, requests: int, tries: int) -> Iterator[Figure]:
    """Rate the answers on a limit of the latency that a known share of the requests keeps in a long load."""
    case, draw = f"{server.name}, {arrivals}, {requests}", random.Random(requests)
    for share, answer, limit in (
        (TOO_FEW, True, WRONG),
        (ENOUGH, False, WRONG),
        (TOO_FEW, False, None),
        (ENOUGH, True, None),
    ):
        allowed_s = _quantile_s(server, arrivals, share)
        loads = (load(server, arrivals, CARRIED, requests, draw) for _ in range(tries))
        found = sum(_keeps(one, allowed_s) is answer for one in loads)
        name = f"objective that {share:.0%} keep called {'kept' if answer else 'missed'}, {SHARE:.0%} asked: {case}"
        yield rate(name, found, tries, limit=limit)


def _keeps(one: Load, allowed_s: float) -> bool | None:
    kept = attainment([[late / allowed_s for late in one.answered_s]], fewest=fewest_requests([one.due_s]))
    return holds([saturation([one]).verdict, kept.verdict])


@cache
def _quantile_s(server: Server, arrivals: str, share: float) -> float:
    """Return the latency that a share of the requests of a long load keeps."""
    latencies_s = load(server, arrivals, CARRIED, LONG, random.Random(0)).answered_s
    return quantiles(latencies_s[LONG // 10 :], n=100)[round(100 * share) - 1]


def _of_searches(server: Server, requests: int, tries: int) -> Iterator[Figure]:
    """Rate searches from an eighth of the capacity, with Poisson arrivals."""
    case, draw = f"{server.name}, {requests}", random.Random(requests)
    ends = [search(server, requests, draw) for _ in range(tries)]
    lows = [end.saturation.low_per_s / server.capacity_per_s if end.saturation.low_per_s else 0.0 for end, _ in ends]
    highs = [end.saturation.high_per_s / server.capacity_per_s if end.saturation.high_per_s else FAR for end, _ in ends]
    yield rate(f"search that ends too high: {case}", sum(low > FAR for low in lows), tries, limit=WRONG_OF_SEARCHES)
    yield rate(
        f"search that ends too low: {case}", sum(high < 1 / FAR for high in highs), tries, limit=WRONG_OF_SEARCHES
    )
    near = sum(low >= 1 / FAR and high <= FAR for low, high in zip(lows, highs, strict=True))
    yield rate(f"search whose interval lies within {FAR:g} of the capacity: {case}", near, tries)
    yield _spread(f"highest rate found over the capacity, middle 90 %: {case}", "x", lows)
    yield _spread(f"probes of a search, middle 90 %: {case}", "", [float(probes) for _, probes in ends])


def search(server: Server, requests: int, draw: random.Random) -> tuple[Found, int]:
    """Search the rate that a server keeps up with; return the end and the number of probes."""
    answers, going = list[tuple[float, bool | None]](), RateSearch(start_per_s=server.capacity_per_s / 8)
    while isinstance(step := going.step(answers), float):
        point = load(server, "Poisson", step / server.capacity_per_s, requests, draw)
        answers.append((step, holds([saturation([point]).verdict])))
    return step, len(answers)


def _spread(name: str, unit: str, values: list[float]) -> Figure:
    cuts = quantiles(values, n=20) if len(values) > 1 else values
    return Figure(name, unit, Interval(fmean(values), cuts[0], cuts[-1]), len(values))
