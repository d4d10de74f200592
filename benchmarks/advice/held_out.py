"""Predictions of the paper's cells for ranking them: by the runs of other methods, choices or machines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence

import numpy as np

from benchmarks.advice.choices import place_of
from benchmarks.prediction.cells import Cell
from benchmarks.prediction.fit import Runs, Vector, fitted
from benchmarks.prediction.judge import Judge, Judged

METHOD = "each method by a fit that saw none of its runs"
BEST = "all by a fit that saw no run of the fastest method"
CHOICE = "all by a fit that saw no run of the table, model and machine"
PLATFORM = "all by a fit that saw no run of the machine"
NOTHING = "all by the fit to every run"


class HeldOut:
    """All printed cells, predicted by fits that leave different runs out; none is fitted to an odd cell."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self.cells = [*judge.printed, *judge.odd]
        self._by_method: dict[frozenset[str], Vector] = {}

    def all_ways(self) -> Iterator[Judged]:
        """Yield the predictions by each way of leaving runs out, the strictest first."""
        yield self.method()
        yield self.best()
        yield self.choice()
        yield self.platform()
        yield self.nothing()

    def method(self) -> Judged:
        """Predict each method by a fit of its own."""
        return self._by(METHOD, _method, lambda cell: self._without_method(cell.method))

    def best(self) -> Judged:
        """Predict each choice by the one fit that saw no run of its fastest method, on any machine."""
        even = _parts(self._judge.printed, place_of)
        fastest = {place: min(cells, key=_per_token).method for place, cells in even}
        ranked = [cell for cell in self.cells if place_of(cell) in fastest]
        return self._by(BEST, place_of, lambda cell: self._without_method(fastest[place_of(cell)]), ranked)

    def choice(self) -> Judged:
        """Predict each choice by all others."""
        return self._by(CHOICE, place_of, lambda cell: self._without(lambda other: place_of(other) == place_of(cell)))

    def platform(self) -> Judged:
        """Predict each machine by its data sheet and the others' runs; odd cells have no part in it."""
        left = self._judge.platform_left_out(kept=False)
        return Judged(PLATFORM, left.cells, left.errors)

    def nothing(self) -> Judged:
        """Predict by the constants that are carried, as advice about the paper's machines does."""
        return Judged(NOTHING, self.cells, Runs(self.cells, [], self._judge.known).errors(np.zeros(0)))

    def _by(
        self,
        name: str,
        key: Callable[[Cell], Hashable],
        logs_of: Callable[[Cell], Vector],
        ranked: Sequence[Cell] | None = None,
    ) -> Judged:
        """Predict the cells that share a key by the constants that belong to the first of them."""
        cells, errors = [], []
        for _, part in _parts(self.cells if ranked is None else ranked, key):
            cells += part
            errors.append(Runs(part, self._judge.constants).errors(logs_of(part[0])))
        return Judged(name, cells, np.concatenate(errors))

    def _without_method(self, method: frozenset[str]) -> Vector:
        if method not in self._by_method:
            self._by_method[method] = self._without(lambda cell: cell.method == method)
        return self._by_method[method]

    def _without(self, left_out: Callable[[Cell], bool]) -> Vector:
        kept = [cell for cell in self._judge.printed if not left_out(cell)]
        runs = Runs([*kept, *self._judge.card], self._judge.constants)
        return fitted(runs, self._judge.constants, self._judge.logs)


def without_odd(judged: Judged) -> Judged:
    """Return the cells that contradict no others."""
    return judged.part(judged.name, [not cell.odd for cell in judged.cells])


def _method(cell: Cell) -> Hashable:
    return cell.method


def _per_token(cell: Cell) -> float:
    return cell.step_s / cell.plan.amount


def _parts(cells: Sequence[Cell], key: Callable[[Cell], Hashable]) -> list[tuple[Hashable, list[Cell]]]:
    parts = defaultdict(list)
    for cell in cells:
        parts[key(cell)].append(cell)
    return list(parts.items())
