"""The verdict of a sweep's control: whether its first run was as fast when measured again at the sweep's end."""

from __future__ import annotations

import json
from collections.abc import Sequence

from llmexp.analysis.sameness import is_another, where_asked
from llmexp.record.naming import NOT_MEASURED
from llmexp.report.equivalence import Answer, of_rows
from llmexp.report.row import Row

_SAID: dict[Answer, str] = {
    "same": "is equally fast again, so the machine does not explain other differences",
    "different": ("is NOT equally fast again: the machine changed meanwhile, and differences this large mean nothing"),
    "unknown": "may or may not be equally fast again",
}


def control_lines(rows: Sequence[Row]) -> list[str]:
    """Return a line for each measured control whose first run was measured too."""
    controls = [row for row in rows if row.is_control]
    first = {_measured(row): row for row in rows if not row.is_control} if controls else {}
    pairs = ((first.get(_measured(row)), row) for row in controls)
    return [line for one, again in pairs if one and (line := _line(one, again))]


def _line(first: Row, again: Row) -> str:
    if is_another(training := where_asked(first.trained, again.trained)):
        return f"control: {first.name} did NOT do the same training again: {training.reason}"
    found = of_rows(first, again)
    return f"control: {first.name} {_SAID[found.answer]}: {found.reason}" if found else ""


def _measured(row: Row) -> str:
    """Return everything that decides what a run measures, apart from its being a control."""
    config = row.plan.config.model_dump(mode="json", exclude={*NOT_MEASURED, "control"})
    return json.dumps([config, row.plan.name_fields], sort_keys=True)
