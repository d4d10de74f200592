"""Cells of the paper that contradict each other, and how far off whatever predicts all of them has to be.

A rule is a weighted sum of step times that is not positive in any model whose terms add up or overlap: F saves
some, R and O cost some. R costs no more with F, as forward is shorter then. Larger models and batches take longer, but
a batch no longer than its samples one by one. Links do not slow down.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import floor
from typing import NamedTuple

from benchmarks.prediction.cells import Cell

# Cells contradict each other where one of them has to be off by more than this share of its step.
BEYOND = 0.05
_SMALLER = {"13b": ("7b",), "70b": ("7b", "13b")}
# The factor of each cell's step time, by the cell's place.
Rule = Mapping[int, float]


class _Setting(NamedTuple):
    task: str
    model: str
    hardware: str
    batch: int
    method: frozenset[str]

    @classmethod
    def of(cls, cell: Cell) -> _Setting:
        return cls(cell.task, cell.plan.config.model.name, cell.hardware, cell.plan.batch.micro, cell.method)

    def with_(self, *atoms: str) -> _Setting | None:
        """Return it with atoms that it does not have."""
        return None if self.method & set(atoms) else self._replace(method=self.method | set(atoms))


def rules(cells: Sequence[Cell]) -> Iterator[Rule]:
    """Yield the rules between these cells."""
    places = {_Setting.of(cell): place for place, cell in enumerate(cells)}
    for setting, place in places.items():
        for shorter, longer in _pairs(setting):
            if shorter in places and longer in places:
                yield {places[shorter]: 1.0, places[longer]: -1.0}
        crossed = [setting.with_(*atoms) for atoms in (("F", "R"), ("F",), ("R",))]
        if all(each in places for each in crossed):
            both, fused, again = (places[each] for each in crossed if each)
            yield {both: 1.0, place: 1.0, fused: -1.0, again: -1.0}
        for smaller, less in places.items():
            if smaller.batch < setting.batch and smaller._replace(batch=setting.batch) == setting:
                yield {less: 1.0, place: -1.0}
                yield {place: 1.0, less: -setting.batch / smaller.batch}


def _pairs(setting: _Setting) -> Iterator[tuple[_Setting | None, _Setting | None]]:
    """Yield pairs with a setting of which the first is not slower."""
    yield setting.with_("F"), setting
    yield setting, setting.with_("R")
    yield setting, setting.with_("O")
    yield from ((setting._replace(model=smaller), setting) for smaller in _SMALLER.get(setting.model, ()))
    if setting.hardware == "rtx3090":
        yield setting._replace(hardware="rtx3090_nvlink"), setting


def least_error(rule: Rule, cells: Sequence[Cell]) -> float:
    """Return the largest error, as a share of its step, that one of the cells has in every model that keeps the rule.

    Where none is off by more, the positive terms are (1 - error) of what was measured at least, and the negative ones
    (1 + error) at most.
    """
    terms = [factor * cells[place].step_s for place, factor in rule.items()]
    return max(0.0, sum(terms) / sum(map(abs, terms)))


def contradicting(cells: Sequence[Cell]) -> set[int]:
    """Return the places of cells in rules that are broken by more than a little."""
    return {place for rule in rules(cells) if least_error(rule, cells) > BEYOND for place in rule}


def least_quantile(cells: Sequence[Cell], share: float) -> float:
    """Return what this quantile of the errors is at least, in every model that keeps all rules.

    Of broken rules without a common cell each has a wrong cell of its own. The worst are taken first.
    """
    broken = sorted(((least_error(rule, cells), rule) for rule in rules(cells)), key=lambda one: -one[0])
    used: set[int] = set()
    errors: list[float] = []
    for error, rule in broken:
        if not used & set(rule):
            used |= set(rule)
            errors.append(error)
    rank = len(cells) - 1 - floor(share * (len(cells) - 1))
    return errors[rank] if rank < len(errors) else 0.0
