"""Engines as a table names them: a program of engine=script by its short name. What is compared is its whole command, in TrainingRow.work."""

from __future__ import annotations

from collections.abc import Sequence

from llmexp.record.program_names import short_names
from llmexp.tasks.training.report.row import TrainingRow


def engine_names(rows: Sequence[TrainingRow]) -> dict[str, str]:
    """By run id; rows whose programs or options differ have names that differ."""
    short = short_names(list(dict.fromkeys(row.program for row in rows if row.program)))
    return {row.id: f"script {short[row.program]}" if row.program else row.work["engine"] for row in rows}
