"""The constants of a server's iterations fitted to published measurements, and judged by leaving sources out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np

from benchmarks.prediction.fit import Constant, Runs, Vector, fitted
from benchmarks.prediction.served import Measured, measured
from llmexp.serving.predict.rates import LOOPS

# What is fitted: where it starts, which is a round figure of the right size, and the spread of its logarithm. That of
# elementwise is counted: two norms with their sums 8, rotary 3, the product of gate and up 5, the cache 2.
_FITTED = {
    "memory_share": (0.85, 0.1),
    "fp8_memory": (1.0, 0.15),
    "int8_memory": (1.0, 0.15),
    "int4_memory": (1.0, 0.15),
    "products": (0.9, 0.1),
    "cache_share": (0.7, 0.2),
    "elementwise": (18.0, 0.1),
    "prompt_elementwise": (15.0, 0.7),
    "layer_s": (1e-5, 0.7),
    "eager_layer_s": (7e-4, 0.3),
    "prompt_layer_s": (3e-4, 0.5),
    "prompt_expert_layer_s": (3e-4, 0.7),
    "python_step_s": (1.5e-3, 0.7),
    "overlapped_step_s": (5e-4, 0.7),
    "lean_step_s": (2e-4, 0.7),
    "python_request_s": (2e-5, 0.7),
    "overlapped_request_s": (1e-5, 0.7),
    "lean_request_s": (3e-6, 0.7),
    "all_reduce_s": (8e-6, 0.5),
    "pcie_all_reduce_s": (2.5e-5, 0.5),
    "link_share": (0.8, 0.2),
    "python_first_token_s": (0.012, 0.5),
    "lean_first_token_s": (1e-3, 0.7),
}
CONSTANTS = [Constant(rate, (), spread, start) for rate, (start, spread) in _FITTED.items()]
# A source with many rows counts as much as one with so many.
_ROWS_OF_SOURCE = 8


def weights(rows: Sequence[Measured], most: int = _ROWS_OF_SOURCE) -> Vector:
    """Return how much each row counts: a source with many rows as much as one with so many."""
    of_source = Counter(row.source for row in rows)
    return np.array([min(1.0, most / of_source[row.source]) for row in rows])


def constants_of(logs: Vector) -> dict[str, float]:
    """Return the constants by name."""
    return {one.rate: float(np.exp(log)) for one, log in zip(CONSTANTS, logs, strict=True)}


def errors(rows: Sequence[Measured], known: Mapping[str, float]) -> Vector:
    """Return the logarithms of predicted over measured numbers."""
    return np.array([np.log(row.predicted(known) / row.value) for row in rows])


class ServedRuns:
    """Rows as a fit sees them: their errors, those of large sources drawn together."""

    def __init__(self, rows: Sequence[Measured]) -> None:
        self._rows, self._roots = rows, np.sqrt(weights(rows))

    def errors(self, logs: Vector) -> Vector:
        """Return the weighted logarithms of predicted over measured numbers."""
        return np.asarray(errors(self._rows, constants_of(logs)) * self._roots)


def fit(rows: Sequence[Measured], begin: Vector | None = None) -> Vector:
    """Return the logarithms of the constants that fit the rows best."""
    # Of its runs a fit asks for their errors only.
    return fitted(cast(Runs, ServedRuns(rows)), CONSTANTS, begin)


@dataclass(frozen=True)
class Left:
    """Rows that took no part in the fit that predicts them, with their errors."""

    rows: Sequence[Measured]
    errors: Vector

    @property
    def off(self) -> Vector:
        """The errors as shares of the measured numbers."""
        return np.abs(np.expm1(self.errors))

    def part(self, kind: str, source: str | None = None) -> Left:
        """Return the rows of a kind, or those of one source among them."""
        return self._kept([row.kind == kind and source in (None, row.source) for row in self.rows])

    def by_predicted_engines(self, cards: Container[str]) -> Left:
        """Return the rows of engines that llmexp predicts on some cards."""
        return self._kept([row.row["engine"] in LOOPS and row.row["hardware"] in cards for row in self.rows])

    def _kept(self, kept: Sequence[bool]) -> Left:
        return Left([row for row, keep in zip(self.rows, kept, strict=True) if keep], self.errors[np.array(kept)])

    @property
    def sources(self) -> list[str]:
        """Who measured the rows."""
        return sorted({row.source for row in self.rows})

    def of_sources(self) -> Iterator[tuple[str, float]]:
        """Yield the median error of each source."""
        for source in self.sources:
            mine = [row.source == source for row in self.rows]
            yield source, float(np.median(self.off[np.array(mine)]))

    @property
    def median(self) -> float:
        """The median over sources of each source's median error."""
        return float(np.median([error for _, error in self.of_sources()]))


class ServedJudge:
    """Fits once to all rows of today's servers, and once without each source."""

    def __init__(self) -> None:
        every = measured()
        self.impossible = [row for row in every if row.is_impossible]
        self.old = [row for row in every if row.is_old and not row.is_impossible]
        self.rows = [row for row in every if not row.is_old and not row.is_impossible]

    @cached_property
    def logs(self) -> Vector:
        """The constants that fit all rows."""
        return fit(self.rows)

    @cached_property
    def left(self) -> Left:
        """Every row, predicted by the other sources."""
        rows: list[Measured] = []
        found = []
        for source in sorted({row.source for row in self.rows}):
            out = [row for row in self.rows if row.source == source]
            logs = fit([row for row in self.rows if row.source != source], self.logs)
            rows += out
            found.append(errors(out, constants_of(logs)))
        return Left(rows, np.concatenate(found))

    @cached_property
    def of_old(self) -> Left:
        """Servers of before, which took no part in any fit."""
        return Left(self.old, errors(self.old, constants_of(self.logs)))
