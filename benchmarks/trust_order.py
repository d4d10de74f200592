"""How far a drift of the machine over a sweep makes equal methods look different, by the order of their repeats."""

from __future__ import annotations

import random
from collections.abc import Iterator
from statistics import harmonic_mean
from types import SimpleNamespace
from typing import Any

from benchmarks.figure import Figure
from benchmarks.interval import Interval
from benchmarks.rates import rate
from benchmarks.simulated import Protocol, Scatter, Simulated
from llmexp.sweep.interleaved import in_round
from llmexp.training.report.conclusion import FASTER, SLOWER, conclusion

# A machine that is as quiet as they are, but slows down evenly by so much from the sweep's first repeat to its last.
SCATTER, DRIFT = Scatter(0.05, 0.5, 0.005), 0.05
METHODS = ("Naive", "F", "R", "C", "Z2", "Z3")
REPEATS = (3, 4)
# Limits in percent: of the bias, and of the tables that tell equal methods apart.
BIAS, FALSE_ALARMS = {3: 0.7, 4: 0.01}, 2.0
Slots = dict[str, list[int]]


def order_verdicts(tries: int) -> Iterator[Figure]:
    """Yield the bias of the ratio between the last and the first method, and how often a table is wrong about any."""
    for repeats in REPEATS:
        case = f"{DRIFT:.0%} drift over {len(METHODS)} methods x {repeats}"
        orders = {"run by run": run_by_run(repeats), "interleaved": interleaved(repeats)}
        for name, slots in orders.items():
            bias, limit = abs(bias_percent(slots)), BIAS[repeats] if name == "interleaved" else None
            yield Figure(
                f"bias of last to first method, {name}: {case}", "%", Interval(bias, bias, bias), 1, limit=limit
            )
        for name, slots in orders.items():
            wrong, limit = _wrong_tables(slots, tries), FALSE_ALARMS if name == "interleaved" else None
            yield rate(f"table that tells equal methods from Naive, {name}: {case}", wrong, tries, limit=limit)


def run_by_run(repeats: int) -> Slots:
    """Return the places of each method's repeats in time, where each method has all of its repeats at once."""
    return {method: list(range(place * repeats, (place + 1) * repeats)) for place, method in enumerate(METHODS)}


def interleaved(repeats: int) -> Slots:
    """Return the places of each method's repeats in time, in rounds as a sweep takes them."""
    turns = [method for number in range(1, repeats + 1) for method in in_round(METHODS, number)]
    return {method: [place for place, whose in enumerate(turns) if whose == method] for method in METHODS}


def bias_percent(slots: Slots) -> float:
    """Return by how much the last method's speed differs from the first one's, of equal methods without scatter."""
    first, *_, last = (harmonic_mean([1 / level for level in _levels(slots, method)]) for method in METHODS)
    return 100 * (last / first - 1)


def _levels(slots: Slots, method: str) -> tuple[float, ...]:
    """Return the times of each repeat, 1 at the sweep's begin and 1 + DRIFT at its end."""
    places = sum(map(len, slots.values()))
    return tuple(1 + DRIFT * place / (places - 1) for place in slots[method])


def _wrong_tables(slots: Slots, tries: int) -> int:
    draw, wrong = random.Random(4), 0
    for _ in range(tries):
        rows: list[Any] = []
        for method, places in slots.items():
            protocol = Protocol("", len(places), 5, 20)
            speed, judged = Simulated(protocol, SCATTER, levels=_levels(slots, method)).run(draw)
            result = SimpleNamespace(stability=judged)
            rows.append(SimpleNamespace(method=method, is_control=False, comparison_key={}, result=result, rate=speed))
        wrong += any(SLOWER in line or FASTER in line for line in conclusion(rows))
    return wrong
