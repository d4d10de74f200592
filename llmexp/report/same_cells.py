"""Columns whose cells are the same in every row, which a line above the table says once."""

from __future__ import annotations

from collections.abc import Sequence

from llmexp.report.columns import Column


def part_same(columns: Sequence[Column]) -> tuple[list[Column], str]:
    """Return the columns to show, and a line on those whose cells are all the same; empty where there are none.

    The line takes columns that identify runs and those that may be dropped; the rate and others that always stay do.
    A table of one row keeps all its columns.
    """
    same = [column for column in columns if _is_same(column)]
    said = "; ".join(f"{column.header} {column.cells[0]}".replace("\u00a0", " ") for column in same)
    return [column for column in columns if column not in same], f"same in every row: {said}" if said else ""


def _is_same(column: Column) -> bool:
    cells = set(column.cells)
    return (column.left or column.dispensable > 0) and len(column.cells) > 1 and len(cells) == 1 and cells != {""}
