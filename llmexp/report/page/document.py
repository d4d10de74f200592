"""The page itself: what the template is given, and the template filled in."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

from llmexp.errors import RecordError
from llmexp.record.reading import plain
from llmexp.record.redact import redact, redact_all
from llmexp.report.columns import ReportTable
from llmexp.report.legend import small
from llmexp.report.page.chart import Chart
from llmexp.report.page.drawing import drawing
from llmexp.report.page.question import asked_command, endings
from llmexp.report.page.section_charts import section_charts
from llmexp.report.page.tables import certainty_table, commands_table, environment_table, table_data
from llmexp.report.picture import can_draw
from llmexp.report.provenance import provenance
from llmexp.report.section import ReportSection
from llmexp.report.setup_paragraph import setup_paragraph
from llmexp.report.table import Report

PACKAGE = "llmexp.report.page"
# The pictures of more rows than this would take minutes to draw, and show nothing that can be read.
MOST_DRAWN = 200
_NUMBERED = re.compile(r"\(\d+\) ")


def can_make_pages() -> bool:
    """Tell whether jinja2 is installed; a node that only measures may lack it."""
    return find_spec("jinja2") is not None


def page(report: Report, title: str = "llmexp report") -> str:
    """Return the report as one HTML document; see document."""
    return document([_section(section) for section in report.sections], title, report.unreadable)


def document(sections: Sequence[dict[str, Any]], title: str, unreadable: Sequence[str] = ()) -> str:
    """Return the page of these sections, which loads nothing; raises RecordError without jinja2.

    Every text of a run is escaped, and secrets are hidden in it. A policy in the document allows its own script
    alone, and no connection.
    """
    if not can_make_pages():
        raise RecordError("no page can be written here: it needs jinja2")
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    content = _safe({"title": title, "sections": list(sections), "unreadable": list(unreadable)})
    for section in content["sections"]:
        section["charts"] = [_drawn(chart) for chart in section["charts"]]
    environment = Environment(
        loader=PackageLoader("llmexp.report", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = _read("page.js")
    return environment.get_template("page.html.jinja").render(
        content,
        data=_tables(content),
        styles=Markup(_read("page.css")),
        script=Markup(script),
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _drawn(found: dict[str, Any]) -> dict[str, Any]:
    from markupsafe import Markup

    chart = Chart.of(found)
    return {"title": chart.title, "caption": chart.caption, "drawing": Markup(drawing(chart))}


def _section(section: ReportSection) -> dict[str, Any]:
    tables = _section_tables(section)
    return {
        "title": section.title or "runs",
        "asked": endings(section.rows) if section.rows else "",
        "command": asked_command(section.rows),
        "answers": section.answers,
        "charts": [chart.values for chart in section_charts(section)],
        "matrices": [asdict(matrix) for matrix in section.matrices],
        "pictures": list(_pictures(section)),
        "setup": setup_paragraph(section),
        "provenance": provenance(section.rows),
        "groups": [[shown_table(table, section.answers) for table in filter(None, tables[name])] for name in tables],
    }


def _section_tables(section: ReportSection) -> dict[str, Sequence[ReportTable | None]]:
    """Return the tables in the order of the page: runs with what belongs to them, certainty, environment, commands.

    A single run has no command besides the one that was asked.
    """
    return {
        "runs": [_runs_table(section), *section.tables, *section.layouts],
        "certainty": [certainty_table(section)],
        "environment": [environment_table(section)],
        "commands": [commands_table(section) if len(section.rows) > 1 else None],
    }


def _runs_table(section: ReportSection) -> ReportTable:
    """Return the table of runs without the names that all of them share, which the title of the section has."""
    table, shared = section.table, set(section.shared.values())
    kept = [
        column
        for column in table.columns
        if not (column.left and len(set(column.cells)) == 1 and {*column.cells} <= shared)
    ]
    return replace(table, title="All runs", columns=kept if len(section.rows) > 1 else table.columns)


def shown_table(table: ReportTable, answers: Sequence[str] = ()) -> dict[str, Any]:
    """Return a table as the template and the page's script take it.

    Its numbered notes are told from its legend, in which nothing stands that is an answer.
    """
    said = {small(answer) for answer in answers}
    lines = [line for line in table.legend if small(line) not in said]
    notes = [line for line in lines if _NUMBERED.match(line)]
    return {"notes": notes, "legend": [line for line in lines if line not in notes], **table_data(table)}


def _pictures(section: ReportSection) -> Iterator[dict[str, str]]:
    """Yield the pictures that are no charts of the page, as SVG in data URLs, where no script can run."""
    if not can_draw() or not 0 < len(section.rows) <= MOST_DRAWN:
        return
    from matplotlib import rc_context

    with TemporaryDirectory() as folder, rc_context({"svg.fonttype": "none"}):
        for path in section.draw_more(Path(folder) / "report.svg"):
            name = path.stem.removeprefix("report_")
            if name not in section.drawn_as_charts:
                yield {"name": name.replace("_", " "), "url": f"data:image/svg+xml,{_small(path.read_text())}"}


def _small(picture: str) -> str:
    """Return an SVG for a URL, without what nobody sees: comments, metadata, places beyond a tenth of a point."""
    seen = re.sub(r"(?s)<!--.*?-->|<metadata>.*?</metadata>|<\?xml.*?\?>|<!DOCTYPE.*?>", "", picture)
    rounded = re.sub(r"(?<=\d)(\.\d)\d+", r"\1", re.sub(r"\s+", " ", seen))
    return quote(rounded, safe=" /:;=?!,()'@$*+&-._~")


def _safe(content: dict[str, Any]) -> dict[str, Any]:
    """Hide secrets and characters that control a terminal, in all texts but the pictures."""
    pictures = [section.pop("pictures") for section in content["sections"]]
    together = json.dumps(content, ensure_ascii=False)  # redacting each text takes long and is seldom needed
    safe = content
    if redact(together) != together or plain(together) != together:
        safe = json.loads(plain(json.dumps(redact_all(content), ensure_ascii=False)))
    for section, drawn in zip(safe["sections"], pictures, strict=True):
        section["pictures"] = drawn
    return safe


def _tables(content: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the tables in the order of the page, without their notes, which the template writes."""
    tables = [table for section in content["sections"] for group in section["groups"] for table in group]
    return [{key: value for key, value in table.items() if key not in ("notes", "legend")} for table in tables]


def _read(name: str) -> str:
    return files(PACKAGE).joinpath(name).read_text(encoding="utf-8")
