"""Names of engines in a table: a program of engine=script goes by its short name.

Comparisons use its whole command, which is in TrainingRow.comparison_key.
"""

from __future__ import annotations

from collections.abc import Sequence

from llmexp.record.program_names import short_names
from llmexp.training.report.row import TrainingRow


def engine_names(rows: Sequence[TrainingRow]) -> dict[str, str]:
    """Return the engines' names by run id; rows whose programs or options differ have different names."""
    short = short_names(list(dict.fromkeys(row.program for row in rows if row.program)))
    return {row.id: f"script {short[row.program]}" if row.program else row.comparison_key["engine"] for row in rows}
