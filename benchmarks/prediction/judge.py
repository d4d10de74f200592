"""Predictions of runs that the fit did not see: a method, a larger batch, or a whole platform left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.prediction.cells import Cell, others_cells, own_cells, printed_cells
from benchmarks.prediction.fit import Constant, Runs, Vector, constants_to_fit, fitted, known_of, without_platform

PLATFORMS = (("a800",), ("rtx4090",), ("rtx3090_nvlink", "rtx3090"))
# A card's own runs tell the constants that no cell of the paper can: of C, and of torch's fused AdamW.
FITTED_CARD = "h200"
PUBLISHED = "published by others, never fitted"
CARD_LEFT_OUT = "this project's H200, none of its runs kept"
# The three runs of a platform that a calibration would measure: bound by computation, by links, by the host.
THREE = (("III", "7b", "F+Z3"), ("IX", "7b", "L+F"), ("III", "7b", "F+Z2+O"))


@dataclass(frozen=True)
class Judged:
    """Runs that were held out: what was left out, and by how much each prediction was off."""

    name: str
    cells: list[Cell]
    errors: Vector
    """Logarithms of predicted over measured step times."""

    @property
    def off(self) -> Vector:
        """Each step time's error as a share of the measured one."""
        return np.abs(np.expm1(self.errors))

    @property
    def of_speed(self) -> Judged:
        """The same runs, whose errors are shares of their tokens/s."""
        return Judged(self.name, self.cells, -self.errors)

    @property
    def by_source(self) -> dict[str, Judged]:
        """The runs of each table or source."""
        names = sorted({cell.table for cell in self.cells})
        return {name: self.part(name, [cell.table == name for cell in self.cells]) for name in names}

    def part(self, name: str, keep: Sequence[bool]) -> Judged:
        """Return some of them."""
        mask = np.array(keep, dtype=bool)
        return Judged(name, [cell for cell, kept in zip(self.cells, keep, strict=True) if kept], self.errors[mask])


class Judge:
    """All runs, the constants that fit them, and what happens where some are left out."""

    def __init__(self) -> None:
        self.constants = constants_to_fit()
        printed, own = printed_cells(), own_cells()
        self.odd = [cell for cell in printed if cell.odd]
        self.printed = [cell for cell in printed if not cell.odd]
        self.card = [cell for cell in own if cell.hardware == FITTED_CARD]
        self.other_cards = [cell for cell in own if cell.hardware != FITTED_CARD]
        self.others = others_cells()
        self.logs = fitted(self._runs([*self.printed, *self.card]), self.constants)

    @property
    def known(self) -> dict[str, Any]:
        """The constants that fit all runs."""
        return known_of(self.constants, self.logs)

    def all_runs(self) -> Iterator[Judged]:
        """Yield every judgement."""
        yield self.method_left_out()
        yield self.larger_batches()
        yield self.platform_left_out(kept=True)
        yield self.platform_left_out(kept=False)
        yield self.card_left_out()
        yield Judged("this project's H100, never fitted", self.other_cards, self._as_carried(self.other_cards))

        if self.others:
            yield self.published()

    def fitted_to_all(self) -> Judged:
        """Return the errors of the paper's cells by constants that saw all of them: leaving runs out only adds some."""
        return Judged("no method left out", self.printed, self._errors(self.printed, self.logs))

    def published(self) -> Judged:
        """Predict what others published, by the constants that fit all runs of the paper and the card."""
        return Judged(PUBLISHED, self.others, self._as_carried(self.others))

    def method_left_out(self) -> Judged:
        """Predict each method by constants that saw none of its runs, whatever the model, batch and hardware."""
        cells, errors = [], []
        for method in sorted({cell.method for cell in self.printed}, key=sorted):
            out = [cell for cell in self.printed if cell.method == method]
            logs = self._fit([cell for cell in self.printed if cell.method != method])
            cells += out
            errors.append(self._errors(out, logs))
        return Judged("one method left out", cells, np.concatenate(errors))

    def card_left_out(self) -> Judged:
        """Predict this project's fitted card by the paper's cells alone, which tell nothing of some constants."""
        logs = fitted(self._runs(self.printed), self.constants, self.logs)
        known = known_of(self.constants, logs)
        return Judged(CARD_LEFT_OUT, self.card, Runs(self.card, [], known).errors(np.zeros(0)))

    def larger_batches(self) -> Judged:
        """Predict table IV by tables III and IX, and two of its own steps."""
        larger = [cell for cell in self.printed if cell.table == "IV"]
        seen = {("7b", frozenset({"R"}), "a800"), ("7b", frozenset({"Q", "R"}), "rtx4090")}
        known = [cell for cell in larger if (cell.plan.config.model.name, cell.method, cell.hardware) in seen]
        out = [cell for cell in larger if cell not in known]
        logs = self._fit([cell for cell in self.printed if cell.table != "IV"] + known)
        return Judged("table IV by tables III and IX and two of its steps", out, self._errors(out, logs))

    def platform_left_out(self, *, kept: bool) -> Judged:
        """Predict a platform by its data sheet and the others' runs; with `kept`, by three of its own runs too."""
        cells, errors = [], []
        for platform in PLATFORMS:
            here = [cell for cell in self.printed if cell.hardware in platform]
            elsewhere = [cell for cell in self.printed if cell.hardware not in platform]
            three = [cell for cell in here if _is_of_three(cell)] if kept else []
            shared = self._without(platform)
            logs = fitted(Runs([*elsewhere, *self.card], shared), shared)
            known = without_platform(known_of(shared, logs), platform)
            out = [cell for cell in here if cell not in three]
            cells += out
            errors.append(self._own_fit(platform, three, known, out))
        return Judged(
            f"a platform left out, {'three of its runs' if kept else 'none'} kept", cells, np.concatenate(errors)
        )

    def _own_fit(
        self, platform: Sequence[str], three: Sequence[Cell], known: dict[str, object], out: Sequence[Cell]
    ) -> Vector:
        """Return the errors of runs of a platform after its constants were fitted to a few of its runs."""
        own: list[Constant] = []
        for machine in platform:
            measured = [cell for cell in three if cell.hardware == machine]
            start = Runs([cell for cell in out if cell.hardware == machine][:1], [], known).start
            of_machine = [one for one in self.constants if machine in one.machines] if measured else []
            own += [replace(one, machines=(machine,), start=start(one.rate)) for one in of_machine]
        logs = fitted(Runs(three, own, known), own) if own else np.zeros(0)
        return Runs(out, own, known).errors(logs)

    def _without(self, platform: Sequence[str]) -> list[Constant]:
        left = [replace(one, machines=tuple(m for m in one.machines if m not in platform)) for one in self.constants]
        return [one for one, before in zip(left, self.constants, strict=True) if one.machines or not before.machines]

    def _fit(self, cells: Sequence[Cell]) -> Vector:
        return fitted(self._runs([*cells, *self.card]), self.constants, self.logs)

    def _as_carried(self, cells: Sequence[Cell]) -> Vector:
        """Return the errors by the constants as they are carried: with typical rates, and links for other numbers."""
        return Runs(cells, [], self.known).errors(np.zeros(0))

    def _errors(self, cells: Sequence[Cell], logs: Vector) -> Vector:
        return self._runs(cells).errors(logs)

    def _runs(self, cells: Sequence[Cell]) -> Runs:
        return Runs(cells, self.constants)


def _is_of_three(cell: Cell) -> bool:
    return any(
        (cell.table, cell.plan.config.model.name, cell.method) == (table, model, frozenset(method.split("+")))
        for table, model, method in THREE
    )
