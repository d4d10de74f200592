"""Speeds of runs over those of others with the same work: over Naive, and over the first row's engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from llmexp.report.ratio import RateRatio
from llmexp.report.row import Row
from llmexp.training.report.converged import NAIVE
from llmexp.training.report.row import TrainingRow


@dataclass(frozen=True)
class RelativeSpeeds:
    """The rows of a table, each of which may be compared with others of them."""

    rows: Sequence[TrainingRow]

    def over_naive(self, row: Row) -> RateRatio | None:
        """Return the speed relative to Naive with the same work; None where one of both has none."""
        naive = self._naive.get(tuple(row.comparison_key.values()))
        return RateRatio(row, naive) if naive and row.rate else None

    def over_first_engine(self, row: Row) -> RateRatio | None:
        """Return the speed relative to the first engine's run of the same method and work, where others have it too."""
        first = self._of_first_engine.get(_but_for_engine(row))
        return RateRatio(row, first) if first and row.rate else None

    @cached_property
    def _naive(self) -> dict[tuple[str, ...], TrainingRow]:
        found: dict[tuple[str, ...], TrainingRow] = {}
        for row in self.rows:
            if row.method == NAIVE and row.rate:
                found.setdefault(tuple(row.comparison_key.values()), row)
        return found

    @cached_property
    def _of_first_engine(self) -> dict[tuple[str, ...], TrainingRow]:
        alike: dict[tuple[str, ...], list[TrainingRow]] = {}
        for row in self.rows:
            if row.rate:
                alike.setdefault(_but_for_engine(row), []).append(row)
        several = {key: rows for key, rows in alike.items() if len({row.comparison_key["engine"] for row in rows}) > 1}
        firsts = ((key, row) for key, rows in several.items() for row in reversed(rows))
        return {
            key: row for key, row in firsts if row.comparison_key["engine"] == self.rows[0].comparison_key["engine"]
        }


def _but_for_engine(row: Row) -> tuple[str, ...]:
    return (*row.plan.name_fields.values(), *(value for name, value in row.comparison_key.items() if name != "engine"))
