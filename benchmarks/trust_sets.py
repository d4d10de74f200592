"""How often the verdicts on two sets of runs are wrong, over simulated repeats whose truth is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.figure import Figure
from benchmarks.rates import rate
from benchmarks.trust_turns import turn_verdicts
from llmexp.analysis.many_rows import MARGIN, verdicts
from llmexp.record.result import Metric

ROWS = 40
SLOWDOWN = 0.05
Pairs = list[tuple[Metric, Metric]]


@dataclass(frozen=True)
class Sets:
    """Two sets whose truth is known.

    `shares` are the relative deviations between repeats in the first and the second. The first `slower` rows of the
    second run at `speed`.
    """

    repeats: int
    shares: tuple[float, float] = (0.01, 0.01)
    slower: int = 0
    speed: float = 1 - SLOWDOWN


def set_verdicts(tries: int) -> Iterator[Figure]:
    """Yield all rates in percent: false rows, slowdowns seen, equality shown, and what repeats that depend do."""
    for repeats in (2, 3, 5):
        for shares, limit in (((0.01, 0.01), 5), ((0.01, 0.02), None), ((0.005, 0.03), None)):
            case = f"{ROWS} rows, {repeats} repeats, deviations {shares[0]:.1%} and {shares[1]:.1%}"
            yield _false_sweeps(case, _answers(tries, Sets(repeats, shares)), limit)
    for repeats in (2, 3, 5):
        yield from _found(repeats, tries)
    yield from turn_verdicts(tries)


def _found(repeats: int, tries: int) -> Iterator[Figure]:
    """Rate slowdowns of every row and of one, of the margin, and equal rows; tables of a tenth as many tries."""
    few, floor = max(tries // 10, 10), 95.0 if repeats == 5 else None
    case = f"{ROWS} rows, {repeats} repeats, deviation 1 %"
    every = _flat(_answers(few, Sets(repeats, slower=ROWS)))
    yield rate(f"{SLOWDOWN:.0%} slower called slower, all rows: {case}", every.count("lower"), len(every), floor=floor)
    yield rate(f"{SLOWDOWN:.0%} slower called within noise: {case}", every.count("within"), len(every), limit=5)
    one = _answers(tries, Sets(repeats, slower=1))
    seen = sum(answers[0] == "lower" for answers in one)
    yield rate(f"{SLOWDOWN:.0%} slower called slower, one row: {case}", seen, len(one))
    edge = _flat(_answers(few, Sets(repeats, slower=ROWS, speed=1 / (1 + MARGIN))))
    yield rate(f"slower by the margin called within noise: {case}", edge.count("within"), len(edge), limit=5)
    equal = _flat(_answers(few, Sets(repeats)))
    yield rate(f"equal called within noise: {case}", equal.count("within"), len(equal))


def _false_sweeps(case: str, sweeps: list[list[str]], limit: float | None) -> Figure:
    false = sum(bool({"lower", "higher"} & set(answers)) for answers in sweeps)
    return rate(f"equal sets with any row called different: {case}", false, len(sweeps), limit=limit)


def _flat(sweeps: list[list[str]]) -> list[str]:
    return [answer for answers in sweeps for answer in answers]


def _answers(sweeps: int, sets: Sets) -> list[list[str]]:
    simulated = simulated_sets(np.random.default_rng(0), sweeps, sets)
    return [[verdict.answer for verdict in verdicts(pairs)] for pairs in simulated]


def simulated_sets(rng: np.random.Generator, sweeps: int, sets: Sets) -> Iterator[Pairs]:
    """Yield the pairs of ROWS rows of each sweep, whose repeats are normal."""
    first, second = (rng.normal(1.0, share, (sweeps, ROWS, sets.repeats)) for share in sets.shares)
    second[:, : sets.slower] *= sets.speed
    sides = [zip(values.mean(-1).tolist(), values.std(-1, ddof=1).tolist(), strict=True) for values in (first, second)]
    for (a, a_deviations), (b, b_deviations) in zip(*sides, strict=True):
        yield [
            (
                Metric(mean=mean, std_between_repeats=deviation, n=sets.repeats),
                Metric(mean=other, std_between_repeats=its_deviation, n=sets.repeats),
            )
            for mean, deviation, other, its_deviation in zip(a, a_deviations, b, b_deviations, strict=True)
        ]
