"""Rows in the order of one of the CSV's columns, best first where one direction is better."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from llmexp.errors import unknown
from llmexp.report.row import Row
from llmexp.report.section import ReportSection
from llmexp.report.table import Report


def sorted_by(report: Report, name: str) -> Report:
    """Return the report with each section's rows sorted by a column; rows without a value come last, in their order.

    Raises ConfigError for a name that no section has as a column; sections without that column stay as they are.
    """
    columns = {column: None for section in report.sections for row in section.rows for column in section.record(row)}
    if columns and name not in columns:
        raise unknown("--sort column", name, columns)
    return replace(report, sections=tuple(_sorted(section, name) for section in report.sections))


def _sorted(section: ReportSection, name: str) -> ReportSection:
    valued: list[tuple[Any, Row]] = [(section.record(row).get(name), row) for row in section.rows]
    known = [pair for pair in valued if pair[0] is not None and pair[0] != ""]
    higher_is_better = name in section.metrics and section.metrics[name].better == "higher"
    known.sort(key=lambda pair: _comparable(pair[0]), reverse=higher_is_better)
    rest = [row for value, row in valued if value is None or value == ""]
    return replace(section, rows=(*(row for _, row in known), *rest))


def _comparable(value: Any) -> tuple[int, float, str]:
    """Order numbers by value before all words."""
    return (0, float(value), "") if isinstance(value, int | float) else (1, 0.0, str(value))
