"""How often interleaved runs on a host that others share are told apart although they are equally fast."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import pi, sin
from types import SimpleNamespace
from typing import Any

from benchmarks.figure import Figure
from benchmarks.rates import rate
from benchmarks.simulated import CORES, Protocol, Scatter, Simulated
from benchmarks.trust_order import METHODS, interleaved
from llmexp.analysis.paired import RepeatInRound
from llmexp.report.page.answer import beside_best
from llmexp.training.report.conclusion import DISTURBED, FASTER, SLOWER, conclusion

SCATTER = Scatter(0.05, 0.5, 0.01)
REPEATS = (3, 4)
# In percent of the tables: those that tell any two equal methods apart.
FALSE_ALARMS = 2.0
# The speed goes with a power between these of the share of the cores that is left: ranks may hardly need the host, and
# they may wait for the slowest.
COSTS = (0.0, 2.0)
# Samples of the host say the cores that others took with this standard deviation.
SAMPLED_CORES = 0.03
Places = Sequence[float]
"""The cores that others take while each of the sweep's repeats is measured, in order of time."""
Case = Callable[[int, random.Random], Places]


def slowly(places: int, draw: random.Random) -> Places:
    """Take cores in one wave that is twice as long as the sweep."""
    phase, height = draw.uniform(0, 2 * pi), draw.uniform(0.1, 0.6)
    return [0.8 + height * sin(phase + pi * place / places) for place in range(places)]


def coming_and_going(places: int, draw: random.Random) -> Places:
    """Take cores in bursts that begin and end within rounds."""
    taken, cores = list[float](), draw.uniform(0.4, 1.4)
    for _ in range(places):
        if draw.random() < 0.3:
            cores = 0.1 if cores > 0.1 else draw.uniform(0.4, 1.4)
        taken.append(cores)
    return taken


@dataclass(frozen=True)
class OneRun:
    """Others take so many cores from all runs, and `more` from one of them, in every round or in one."""

    more: float
    rounds: int | None = None

    def __call__(self, places: int, draw: random.Random) -> Places:
        """Return the cores by place."""
        taken, repeats = [0.5] * places, places // len(METHODS)
        hit = interleaved(repeats)[draw.choice(METHODS)]
        for place in draw.sample(hit, self.rounds or repeats):
            taken[place] += self.more
        return taken


CASES: dict[str, Case] = {
    "that varies slowly": slowly,
    "that comes and goes within rounds": coming_and_going,
    "with 0.2 cores more for one run": OneRun(0.2),
    "with a core more for one run": OneRun(1.0),
    "with a core more for one run in one round": OneRun(1.0, rounds=1),
}
# The speed of all methods but Naive over that of Naive, where they are not equally fast.
SPEED = 0.5
# The last third of a window takes so much longer than its first, where the steps of one run drift.
DRIFT = 0.1


@dataclass(frozen=True)
class Table:
    """What is said of one simulated table: the line beside Naive, and each verdict beside the best."""

    line: str
    verdicts: list[str]

    @property
    def judged(self) -> int:
        """The number of methods that are judged beside Naive."""
        nothing = "no method is judged" in self.line
        return len(METHODS) - 1 - (len(METHODS) - 1 if nothing else self.said(DISTURBED))

    def said(self, verdict: str) -> int:
        """Return the number of methods of which the line says so."""
        _, found, names = self.line.partition(f"{verdict}: ")
        return len(names.partition(";")[0].split(", ")) if found else 0


def contention_verdicts(tries: int) -> Iterator[Figure]:
    """Yield how often tables are wrong where all methods are equally fast, and how many slower ones are found."""
    for name, case in CASES.items():
        for repeats in REPEATS:
            said = f"contention {name}, {len(METHODS)} methods x {repeats}"
            yield from _wrong(said, [table(case, repeats, 1.0, random.Random(seed)) for seed in range(tries)])
            yield from _found(said, [table(case, repeats, SPEED, random.Random(seed)) for seed in range(tries)])
    for repeats in REPEATS:
        said = f"contention that varies slowly, one run drifts by {DRIFT:.0%}, {len(METHODS)} methods x {repeats}"
        drifting = [table(slowly, repeats, 1.0, random.Random(seed), DRIFT) for seed in range(tries)]
        yield from _wrong(said, drifting)


def _wrong(said: str, equal: Sequence[Table]) -> Iterator[Figure]:
    beside_naive = sum(one.said(SLOWER) + one.said(FASTER) > 0 for one in equal)
    in_words, tries = sum("slower" in one.verdicts for one in equal), len(equal)
    yield rate(f"table that tells equal methods from Naive: {said}", beside_naive, tries, limit=FALSE_ALARMS)
    yield rate(f"answer that calls an equal method slower: {said}", in_words, tries, limit=FALSE_ALARMS)


def _found(said: str, tables: Sequence[Table]) -> Iterator[Figure]:
    others, of = len(tables) * (len(METHODS) - 1), f"of methods at speed x {SPEED:g}"
    judged, slower = sum(one.judged for one in tables), sum(one.said(SLOWER) for one in tables)
    yield rate(f"{of} judged beside Naive: {said}", judged, others)
    yield rate(f"{of} called slower than Naive: {said}", slower, others)
    in_words = sum(one.verdicts.count("slower") for one in tables)
    yield rate(f"{of} called slower in words: {said}", in_words, others)


def table(case: Case, repeats: int, speed: float, draw: random.Random, drift: float = 0.0) -> Table:
    """Simulate a sweep whose methods have `speed` times that of Naive, and let llmexp judge it.

    The steps of one of them drift.
    """
    places, cost = case(len(METHODS) * repeats, draw), draw.uniform(*COSTS)
    drifting, rows = draw.choice(METHODS), list[Any]()
    for method, slots in interleaved(repeats).items():
        own = 1.0 if method == METHODS[0] else speed
        program = Simulated(Protocol("", repeats, 5, 20), SCATTER, own, drift * (method == drifting))
        rows.append(_row(method, program, {place: places[place] for place in slots}, cost, draw))
    (line,) = conclusion(rows, rounds=lambda row: row.rounds)
    by_mean: list[Any] = sorted(rows, key=lambda row: -row.rate.mean)
    beside = beside_best(by_mean, lambda row: row.rounds)
    return Table(line, [one.verdict for one in beside])


def _row(method: str, program: Simulated, taken: dict[int, float], cost: float, draw: random.Random) -> SimpleNamespace:
    """Return the fields of a table's row that both verdicts need; `taken` are the cores by the repeat's place."""
    levels = tuple((1 - cores / CORES) ** -cost for cores in taken.values())
    seen = tuple(max(0.0, draw.gauss(cores, SAMPLED_CORES)) for cores in taken.values())
    metric, judged, rates = replace(program, levels=levels, taken_cores=seen).run_apart(draw)
    rounds = [
        RepeatInRound(rate, CORES, cores, f"{place:03}", f"{place:03}.9")
        for rate, cores, place in zip(rates, seen, taken, strict=True)
    ]
    row = {"method": method, "is_control": False, "comparison_key": {}, "result": SimpleNamespace(stability=judged)}
    return SimpleNamespace(**row, stability=judged, rate=metric, rounds=rounds)
