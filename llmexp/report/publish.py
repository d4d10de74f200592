"""Measured tables for documents: <folder>/<hardware>/<sweep>.md and .csv, each row with the command that repeats it."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from llmexp.errors import RecordError
from llmexp.record.result import RunStatus
from llmexp.record.writing import write_atomically
from llmexp.report.row import Row
from llmexp.report.table import Report
from llmexp.report.text import comma_separated, markdown

NAME = re.compile(r"\w[\w.+-]*")


def publish(report: Report, folder: Path) -> list[Path]:
    """Write a table for each hardware and sweep; raises RecordError where nothing was measured."""
    tables: dict[Path, list[Row]] = defaultdict(list)
    for row in report.rows:
        tables[folder / _part(row.hardware) / _part(row.plan.config.sweep.name)].append(row)
    written = []
    for path, rows in tables.items():
        if not any(row.state == RunStatus.SUCCESS for row in rows):
            raise RecordError(f"{path}.md is not written: none of its {len(rows)} runs was measured")
        table = Report.of(rows, report.unreadable)
        for suffix, text in ((".md", markdown(table)), (".csv", comma_separated(table))):
            written.append(path.with_name(path.name + suffix))
            write_atomically(written[-1], text)
    return written


def _part(name: str) -> str:
    """Return a name of a plan as a part of a path; raises RecordError where it would lead elsewhere."""
    if not NAME.fullmatch(name):
        raise RecordError(
            f"{name!r} is not written: a table's folder and file are named by letters, digits, '.', '_', '+' and '-'"
        )
    return name
