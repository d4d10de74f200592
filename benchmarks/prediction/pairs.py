"""How often two runs of one model and machine were measured in the order in which they were predicted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby
from math import log

from benchmarks.figure import Figure
from benchmarks.prediction.cells import Cell
from benchmarks.prediction.judge import Judged
from benchmarks.rates import rate
from llmexp.advice.apart import SHARE
from llmexp.training.predict.interval import fitted_group, interval_of

_HARDWARE = {"A800": ("a800",), "other cards": ("rtx4090", "rtx3090_nvlink", "rtx3090")}
# In percent: pairs whose error is within the limit, and pairs told apart that were measured in that order.
WITHIN, RIGHT = 90.0, 90.0


@dataclass(frozen=True)
class Pair:
    """The logarithms of the ratio of two rates, predicted (the larger over the smaller) and measured, and a limit."""

    predicted: float
    measured: float
    limit: float

    @property
    def is_within(self) -> bool:
        """Tell whether the slower one is faster than predicted by no more than the limit."""
        return self.predicted - self.measured <= self.limit

    @property
    def is_told(self) -> bool:
        """Tell whether predictions tell the two apart."""
        return self.predicted > self.limit


def pair_figures(judged: Judged) -> Iterator[Figure]:
    """Yield the shares of pairs within the limit, and of those told apart that were right, by hardware."""
    for name, hardware in {"all hardware": (), **_HARDWARE}.items():
        part = judged.part(name, [not hardware or cell.hardware in hardware for cell in judged.cells])
        pairs = list(pairs_of(part.cells, list(part.errors)))
        told = [pair for pair in pairs if pair.is_told]
        floor = None if hardware else WITHIN
        within = sum(pair.is_within for pair in pairs)
        yield rate(f"pairs whose ratio errs within the limit, {name}", within, len(pairs), floor=floor)
        right = sum(pair.measured > 0 for pair in told)
        yield rate(f"pairs told apart that were measured in that order, {name}", right, len(told), floor=RIGHT)


def pairs_of(cells: Sequence[Cell], errors: Sequence[float]) -> Iterator[Pair]:
    """Yield pairs of other methods; `errors` are logarithms of predicted over measured step times."""
    known = sorted(zip(cells, errors, strict=True), key=lambda one: _place(one[0]))
    for _, of_place in groupby(known, key=lambda one: _place(one[0])):
        for (one, of_one), (other, of_other) in combinations(of_place, 2):
            if one.method != other.method:
                measured = log(_rate(one) / _rate(other))
                predicted = measured - of_one + of_other
                sign = 1 if predicted > 0 else -1
                yield Pair(sign * predicted, sign * measured, _limit(one.task))


def _place(cell: Cell) -> tuple[str, str, str]:
    return cell.plan.config.model.name, cell.hardware, cell.task


def _rate(cell: Cell) -> float:
    return cell.plan.amount / cell.step_s


def _limit(task: str) -> float:
    low, high, _ = interval_of([fitted_group(task)])
    return SHARE * log(high / low)
