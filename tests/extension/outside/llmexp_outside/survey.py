"""A published reference: what a made-up survey printed of sha256."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

from llmexp.extend import Beside, Column, ColumnPlace, Reference, ReportSection, ReportTable, Row, RunPlan, View

BYTES_PER_S = {"sha256": 2e8}


def printed(row: Row) -> float | None:
    return BYTES_PER_S.get(row.name) if row.comparison_key["task"] == "hash" else None


@dataclass(frozen=True)
class DigestsBeside(Beside):
    section: ReportSection

    def columns(self, place: ColumnPlace) -> Sequence[Column]:
        if place != "values":
            return []
        cells = [f"{value:.0e}" if (value := printed(row)) else "" for row in self.section.rows]
        return [Column("survey bytes/s", tuple(cells), dispensable=1)]

    def legend(self, place: ColumnPlace) -> Sequence[str]:
        return ["survey: made up, on another machine"] if place == "values" else []

    def notes_of(self, row: Row) -> Sequence[str]:
        return ["the survey printed nothing of it"] if printed(row) is None else []

    def values_of(self, row: Row) -> dict[str, Any]:
        return {"survey_bytes_per_s": printed(row)}

    def mark_of(self, row: Row, metric: str) -> float | None:
        return printed(row) if metric == "bytes_per_s" else None

    def marks(self, metric: str) -> str:
        return "the survey" if metric == "bytes_per_s" else ""

    def views(self, asked: Container[str] = ()) -> Sequence[View]:
        return [View("speeds", ReportTable("speeds of digests", self.columns("values"), []), rows=self.section.rows)]


class Survey(Reference):
    name = "survey"
    title = "the survey"
    heading = "Beside the survey"
    view_names = ("speeds",)
    example = "speeds"
    first_runs = "python -m llmexp task=hash makes those of its speeds"

    def published_rate(self, plan: RunPlan) -> float | None:
        return BYTES_PER_S.get(next(iter(plan.name_fields.values()))) if plan.config.task.name == "hash" else None

    def beside(self, section: ReportSection) -> Beside:
        return DigestsBeside(section) if section.rows[0].comparison_key["task"] == "hash" else Beside()


SURVEY = Survey()
