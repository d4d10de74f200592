"""Choices among the paper's methods: a table, a model and a machine, and whether a ranking finds the fastest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from benchmarks.prediction.cells import Cell
from benchmarks.prediction.judge import Judged
from llmexp.training.plan.fit import fit_of

# Among fewer methods the first three say little.
LEAST = 4


@dataclass(frozen=True)
class Option:
    """A method that was measured: its tokens/s, those that were predicted, and whether the plan says that it fits."""

    method: str
    measured: float
    predicted: float
    fits: str

    @classmethod
    def of(cls, cell: Cell, error: float) -> Option:
        """Return the option of a cell by the logarithm of its predicted over its measured step time."""
        measured = cell.plan.amount / cell.step_s
        fit = fit_of(cell.plan, cell.plan.batch.micro)
        return cls(cell.plan.method, measured, measured / float(np.exp(error)), fit.verdict if fit else "")


@dataclass(frozen=True)
class Choice:
    """All measured methods of a model on a machine in one table."""

    name: str
    options: tuple[Option, ...]

    @property
    def ranked(self) -> list[Option]:
        """Those that the plan does not refuse, by predicted speed."""
        kept = (one for one in self.options if one.fits != "no")
        return sorted(kept, key=lambda one: -one.predicted)

    @property
    def best(self) -> Option:
        """The one with the highest measured speed, whatever the plan says of it."""
        return max(self.options, key=lambda one: one.measured)

    def reached(self, first: int) -> float:
        """Return the best measured speed of the first ones as a share of the measured best."""
        return max((one.measured for one in self.ranked[:first]), default=0.0) / self.best.measured


def place_of(cell: Cell) -> tuple[str, str, str]:
    """Return the choice that a cell belongs to: table, model and hardware."""
    return cell.table, cell.plan.config.model.name, cell.hardware


def choices_of(judged: Judged) -> list[Choice]:
    """Return the choices among predicted cells, without those among too few methods."""
    places = defaultdict(list)
    for cell, error in zip(judged.cells, judged.errors, strict=True):
        places[place_of(cell)].append(Option.of(cell, float(error)))
    return [Choice(" ".join(place), tuple(places[place])) for place in sorted(places) if len(places[place]) >= LEAST]


def found(choices: Iterable[Choice], first: int, within: float) -> int:
    """Return in how many choices the best of the first ones is at most a share below the measured best."""
    return sum(choice.reached(first) >= 1 - within for choice in choices)
