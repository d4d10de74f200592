"""What a sweep's control says: whether the same run, measured once more at its end, was as fast as the first time."""

from __future__ import annotations

import json
from collections.abc import Sequence

from llmexp.record.naming import NOT_MEASURED
from llmexp.report.equivalence import Answer, equivalence
from llmexp.report.row import Row

_SAID: dict[Answer, str] = {
    "same": "is equally fast again, so that other differences are not the machine's",
    "different": "is NOT equally fast again: the machine changed meanwhile, and differences as large as this say nothing",
    "unknown": "may or may not be equally fast again",
}


def control_lines(rows: Sequence[Row]) -> list[str]:
    """A line for each control that was measured, as its first run was."""
    first = {_measured(row): row for row in rows if not row.is_control}
    pairs = ((first.get(_measured(row)), row) for row in rows if row.is_control)
    return [line for one, again in pairs if one and (line := _line(one, again))]


def _line(first: Row, again: Row) -> str:
    speeds = first.metric("tokens_per_s"), again.metric("tokens_per_s")
    if not speeds[0] or not speeds[1]:
        return ""
    found = equivalence(speeds[0], speeds[1], (first.stability, again.stability))
    return f"control: {first.method} {_SAID[found.answer]}: {found.reason}"


def _measured(row: Row) -> str:
    """All that says what a run measures, but that it is a control."""
    config = {key: value for key, value in row.plan["config"].items() if key not in (*NOT_MEASURED, "control")}
    return json.dumps([config, row.method], sort_keys=True)
