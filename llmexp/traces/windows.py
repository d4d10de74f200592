"""Adds up the breakdowns of one rank that was profiled more than once, with the time between left out."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, TypeVar

from llmexp.record.breakdown import Breakdown
from llmexp.record.samples import Record

R = TypeVar("R", bound=Record)
# What rows of one table are known by; the other numbers of such rows add up.
_KEYS: dict[str, tuple[str, ...]] = {
    "phases": ("phase",),
    "modules": ("phase", "path", "recomputed"),
    "kernels": ("name", "kind"),
}
_LARGEST: dict[str, str] = {"kernels": "work_ns", "gemms": "work_ns", "attention": "work_ns"}
_SUMMED = ("calls", "work_ns")


def together(windows: Sequence[Breakdown]) -> Breakdown:
    """Return one breakdown of all windows; their lists of costly shapes and kernels were cut off one by one."""
    first = windows[0]
    if len(windows) == 1:
        return first
    numbers = {name: sum(getattr(each, name) for each in windows) for name in _numbers(first)}
    tables = {name: _rows(name, [row for each in windows for row in getattr(each, name)]) for name in _tables(first)}
    kinds = dict.fromkeys(kind for each in windows for kind in each.kinds)
    return first.model_copy(
        update={
            **numbers,
            **tables,
            "source": ", ".join(each.source for each in windows),
            "kinds": {kind: sum(each.kinds.get(kind, 0) for each in windows) for kind in kinds},
            "truncated": any(each.truncated for each in windows),
        }
    )


def _numbers(found: Record) -> list[str]:
    return [name for name, value in found if isinstance(value, int | float) and not isinstance(value, bool)]


def _tables(found: Record) -> list[str]:
    return [name for name, value in found if isinstance(value, list)]


def _rows(table: str, rows: Sequence[Any]) -> list[Any]:
    summed = _added(rows, table)
    if order := _LARGEST.get(table):
        summed.sort(key=lambda row: -getattr(row, order))
    return summed


def _added(rows: Iterable[R], table: str) -> list[R]:
    found: dict[Hashable, R] = {}
    for row in rows:
        added = [name for name in _numbers(row) if name not in _KEYS[table]] if table in _KEYS else _SUMMED
        key = tuple(repr(value) for name, value in row if name not in added)
        known = found.get(key)
        sums = {name: getattr(known, name) + getattr(row, name) for name in added} if known else {}
        found[key] = row.model_copy(update=sums)
    return list(found.values())
