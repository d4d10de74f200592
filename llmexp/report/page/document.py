"""The page itself: what the template is given, and the template filled in."""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from llmexp.errors import RecordError
from llmexp.record.reading import plain
from llmexp.record.redact import redact, redact_all
from llmexp.report.columns import ReportTable
from llmexp.report.page.tables import (
    certainty_table,
    commands_table,
    environment_table,
    table_data,
)
from llmexp.report.picture import can_draw
from llmexp.report.provenance import provenance
from llmexp.report.row import OOM, Row
from llmexp.report.section import ReportSection
from llmexp.report.setup_paragraph import setup_paragraph
from llmexp.report.table import Report
from llmexp.report.text_list import listed

PACKAGE = "llmexp.report.page"
NEEDED = ("jinja2", "plotly")
# The pictures of more rows than this would take minutes to draw, and show nothing that can be read.
MOST_DRAWN = 200


def can_make_pages() -> bool:
    """Tell whether jinja2 and plotly are installed; a node that only measures may lack them."""
    return all(find_spec(name) is not None for name in NEEDED)


def page(report: Report, title: str = "llmexp report") -> str:
    """Return the report as one HTML document; see document."""
    return document([_section(section) for section in report.sections], title, report.unreadable)


def document(sections: Sequence[dict[str, Any]], title: str, unreadable: Sequence[str] = ()) -> str:
    """Return the page of these sections, which loads nothing; raises RecordError without jinja2 or plotly.

    Every text of a run is escaped, and secrets are hidden in it. A policy in the document allows its own scripts
    alone, and no connection.
    """
    if not can_make_pages():
        raise RecordError("no page can be written here: it needs jinja2 and plotly")
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    content = _safe({"title": title, "sections": list(sections), "unreadable": list(unreadable)})
    content |= {"data": {"charts": _charts(content), "tables": _tables(content)}}
    has_charts = bool(content["data"]["charts"])
    scripts = [_plotly()] * has_charts + [_read("page.js")]
    environment = Environment(
        loader=PackageLoader("llmexp.report", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    allowed = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    return environment.get_template("page.html.jinja").render(
        content, styles=Markup(_read("page.css")), scripts=[Markup(script) for script in scripts], allowed=allowed
    )


def _section(section: ReportSection) -> dict[str, Any]:
    tables = _section_tables(section)
    return {
        "title": section.title or "runs",
        "asked": _asked(section) if section.rows else [],
        "command": _shared_command(section.rows),
        "answers": section.answers,
        "charts": [chart.figure for chart in section.charts],
        "matrices": [asdict(matrix) for matrix in section.matrices],
        "pictures": list(_pictures(section)),
        "setup": setup_paragraph(section),
        "provenance": provenance(section.rows),
        "groups": [list(map(shown_table, filter(None, tables[name]))) for name in tables],
    }


def _section_tables(section: ReportSection) -> dict[str, Sequence[ReportTable | None]]:
    """Return the tables in the order of the page: runs with what belongs to them, environment, certainty, commands."""
    return {
        "runs": [replace(section.table, title="All runs"), *section.tables, *section.layouts],
        "environment": [environment_table(section)],
        "certainty": [certainty_table(section)],
        "commands": [commands_table(section)],
    }


def shown_table(table: ReportTable) -> dict[str, Any]:
    """Return a table as the template and the page's script take it."""
    return {"notes": list(table.legend), **table_data(table)}


def _pictures(section: ReportSection) -> Iterator[dict[str, str]]:
    """Yield the pictures that the section draws beside its bars, as SVG in data URLs, where no script can run."""
    if not can_draw() or not 0 < len(section.rows) <= MOST_DRAWN:
        return
    drawn_as_charts = ("loss", "scaling") if section.charts else ()
    with TemporaryDirectory() as folder:
        for path in section.draw_more(Path(folder) / "report.svg"):
            name = path.stem.removeprefix("report_")
            if name not in drawn_as_charts:
                encoded = base64.b64encode(path.read_bytes()).decode()
                yield {"name": name.replace("_", " "), "url": f"data:image/svg+xml;base64,{encoded}"}


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


def _charts(content: dict[str, Any]) -> list[dict[str, Any]]:
    return [chart for section in content["sections"] for chart in section["charts"]]


def _tables(content: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the tables in the order of the page, without their notes, which the template writes."""
    tables = [table for section in content["sections"] for group in section["groups"] for table in group]
    return [{key: value for key, value in table.items() if key != "notes"} for table in tables]


def _read(name: str) -> str:
    return files(PACKAGE).joinpath(name).read_text(encoding="utf-8")


def _plotly() -> str:
    """Return the library of the charts, which its Python package brings as one script."""
    return files("plotly").joinpath("package_data", "plotly.min.js").read_text(encoding="utf-8")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _asked(section: ReportSection) -> list[tuple[str, str]]:
    """Return pairs of a term and what it was: subjects, hardware, ranks, runs by state."""
    rows = section.rows
    found = [(name, listed(_values(rows, name))) for name in (rows[0].plan.name_fields if rows else {})]
    found += [("hardware", listed(list(dict.fromkeys(row.hardware for row in rows))))]
    found += [("ranks", listed(list(dict.fromkeys(str(row.processes) for row in rows))))]
    states = Counter("out of memory" if row.state == OOM else row.state for row in rows)
    ended = ", ".join(f"{count} {state}" for state, count in states.most_common())
    return [*found, ("sweep", listed(_sweeps(rows))), ("runs", f"{len(rows)}: {ended}")]


def _shared_command(rows: Sequence[Row]) -> str:
    """Return the words that the commands of all rows share, with an ellipsis where others stand."""
    commands = [row.words for row in rows]
    if not commands:
        return ""
    kept = set(commands[0]).intersection(*commands)
    words = [shlex.quote(word) if word in kept else "…" for word in commands[0]]
    return " ".join(word for place, word in enumerate(words) if word != "…" or words[place - 1 : place] != ["…"])


def _values(rows: Sequence[Row], name: str) -> list[str]:
    return list(dict.fromkeys(row.plan.name_fields[name] for row in rows if name in row.plan.name_fields))


def _sweeps(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row.plan.config.sweep.name for row in rows))
