"""The page's tables as JSON that its script draws in pieces, sorts and filters."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from llmexp.record.digits import rounded
from llmexp.report.columns import ReportTable
from llmexp.report.row import Row
from llmexp.report.section import ReportSection

# These differ between any two moments, or are as long as a page; the run's folder has them.
_PASSING = ("load_average", "git")
_MISSING = "(none)"
NAMED = 4


def table_data(table: ReportTable) -> dict[str, Any]:
    """Return the table as JSON for the page's script."""
    return {
        "title": table.title,
        "headers": table.headers,
        "left": [column.left for column in table.columns],
        "rows": table.rows,
        "copied": table.copied,
    }


def certainty_table(section: ReportSection) -> ReportTable | None:
    """Return how sure each rate is: repeats, interval and verdict; None without rates.

    The rates themselves and the doubts in words stand with the table of runs.
    """
    rows = [row for row in section.rows if row.rate]
    cells = [[section.named(row), *_certainty(row)] for row in rows]
    headers = ["run", "repeats", f"95 % interval, {section.rate_unit}", "interval from", "verdict"]
    right = ("repeats",)
    return ReportTable.of_rows("How sure each number is", headers, cells, right) if cells else None


def _certainty(row: Row) -> Iterator[str]:
    assert row.rate
    judged = row.stability
    ends = (judged.low, judged.high) if judged else (None, None)
    yield str(row.rate.n)
    yield "not known" if None in ends else " to ".join(rounded(end) for end in ends if end is not None)
    yield (judged.source or "") if judged else ""
    yield judged.verdict if judged else "not judged"


def commands_table(section: ReportSection) -> ReportTable:
    """Return the command that repeats each run."""
    rows = [[section.named(row), row.command] for row in section.rows]
    return ReportTable.of_rows("The command of each run", ["run", "command"], rows, copied="command")


def environment_table(section: ReportSection) -> ReportTable | None:
    """Return what differs between the environments of the runs, each value with its runs; None where nothing does."""
    groups = [(places, values) for places, values in _same_environment(section.rows) if values]
    keys = dict.fromkeys(key for _, values in groups for key in values)
    rows = []
    for key in keys:
        by: dict[str, list[int]] = {}
        for places, values in groups:
            by.setdefault(values.get(key, _MISSING), []).extend(places)
        if len(by) > 1:
            rows += [[key, value, _named(section, sorted(places))] for value, places in by.items()]
    title = "What differs between the environments of runs"
    return ReportTable.of_rows(title, ["what", "value", "runs"], rows) if rows else None


def _same_environment(rows: Sequence[Row]) -> Iterator[tuple[list[int], dict[str, str]]]:
    """Yield the places of rows whose environments have the same parts, with all values by their dotted names.

    Rows share the parts that were read once, which need not be compared (record/shared_parts.py).
    """
    groups: dict[tuple[Any, ...], list[int]] = {}
    for place, row in enumerate(rows):
        lasting = _lasting(row)
        parts = (id(value) if isinstance(value, dict) else json.dumps(value) for value in lasting.values())
        groups.setdefault((*lasting, *parts), []).append(place)
    for places in groups.values():
        yield places, _flat(_lasting(rows[places[0]]))


def _named(section: ReportSection, places: Sequence[int]) -> str:
    more = len(places) - NAMED
    labels = [section.named(section.rows[place]) for place in places[:NAMED]]
    return ", ".join(labels) + (f" and {more} more" if more > 0 else "")


def _lasting(row: Row) -> dict[str, Any]:
    environment = row.result.environment if row.result else {}
    return {key: value for key, value in environment.items() if key not in _PASSING}


def _flat(values: Mapping[str, Any], path: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in values.items():
        place = f"{path}.{name}" if path else name
        if isinstance(value, Mapping):
            found |= _flat(value, place)
        else:
            found[place] = value if isinstance(value, str) else json.dumps(value)
    return found
