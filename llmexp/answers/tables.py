"""A reference's tables and figures with what runs have in their cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from llmexp.answers.versioned import Answer, Part, SchemaName
from llmexp.report.references.reference import Reference
from llmexp.report.references.view import View
from llmexp.version import __version__


class TablesSchema(SchemaName):
    """The schema of this answer."""

    name: Literal["llmexp.tables"] = "llmexp.tables"
    version: Literal[1] = 1


class FilledTable(Part):
    """A published table or figure, of the runs of one machine."""

    name: str = Field(description="that of its experiment, such as table03")
    title: str
    cells: list[dict[str, Any]] = Field(description="a cell or a line each, in SI units and bytes, as in CSV")
    legend: list[str]
    answers: list[str] = Field(description="its coverage and outcome in sentences")
    missing: list[str] = Field(description="commands that would fill the cells without a run")


class TablesFilled(Answer):
    """What `llmexp report <reference> --json` prints."""

    schema_name: TablesSchema = Field(TablesSchema(), alias="schema")
    written_by: str = Field(__version__, description="llmexp's version")
    reference: str
    tables: list[FilledTable]
    unreadable: list[str] = Field(description="folders that could not be read, each with the reason")


def tables_filled(reference: Reference, views: Sequence[View], unreadable: Sequence[str]) -> TablesFilled:
    """Return the answer about a reference's tables."""
    return TablesFilled(reference=reference.name, tables=[_table(view) for view in views], unreadable=list(unreadable))


def _table(view: View) -> FilledTable:
    return FilledTable(
        name=view.name,
        title=view.table.title,
        cells=[dict(record) for record in view.records],
        legend=list(view.table.legend),
        answers=list(view.answers),
        missing=list(view.missing),
    )
