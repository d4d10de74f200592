"""The report as LaTeX: for each section a table with the rules of booktabs, its notes, and the set-up in words."""

from __future__ import annotations

import re
from collections.abc import Sequence

from llmexp.record.reading import plain
from llmexp.record.redact import redact
from llmexp.report.columns import Column
from llmexp.report.section import ReportSection
from llmexp.report.setup_paragraph import setup_paragraph
from llmexp.report.table import Report

PREAMBLE = "% Needs \\usepackage{booktabs} and, for wide tables, \\usepackage{graphicx}."
# What LaTeX obeys, and signs that its first fonts lack, by what prints them.
_PRINTED = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "_": r"\_",
    "%": r"\%",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "†": r"$\dagger$",
    "≥": r"$\geq$",
    "…": r"\dots{}",
    "µ": r"$\mu$",
    "\u00a0": "~",
}
_SPECIAL = re.compile("|".join(map(re.escape, _PRINTED)))


def latex(report: Report) -> str:
    """Return a LaTeX fragment to be put into a document with \\input."""
    parts = [PREAMBLE, *(_section(section) for section in report.sections)] if report.sections else ["% No runs"]
    return redact(plain("\n\n".join(parts))).rstrip() + "\n"


def escaped(text: str) -> str:
    """Return a text as LaTeX prints it, on one line."""
    return _SPECIAL.sub(lambda found: _PRINTED[found[0]], " ".join(text.split()) if "\n" in text else text)


def _section(section: ReportSection) -> str:
    notes = [*section.legend, *(f"({number}) {note}" for number, note in enumerate(section.notes, 1))]
    tables = [float_of(section.title, section.columns, notes)]
    tables += [float_of(detail.title, detail.columns, detail.legend) for detail in section.asked_details]
    setup = setup_paragraph(section)
    return "\n\n".join([*tables, *([escaped(setup)] if setup else [])])


def float_of(title: str, columns: Sequence[Column], notes: Sequence[str]) -> str:
    """Return a table with its caption, and its notes below it."""
    lines = [
        r"\begin{table}[t]",
        r"\centering",
        rf"\caption{{{escaped(title)}}}",
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        *_tabular(columns),
        r"}",
        *([r"\par\smallskip\footnotesize\raggedright"] if notes else []),
        *(rf"{escaped(note)}.\par" for note in notes),
        r"\end{table}",
    ]
    return "\n".join(lines)


def _tabular(columns: Sequence[Column]) -> list[str]:
    kinds = "".join("l" if column.left else "r" for column in columns)
    rows = zip(*(column.cells for column in columns), strict=True)
    return [
        rf"\begin{{tabular}}{{{kinds}}}",
        r"\toprule",
        _line([column.header for column in columns]),
        r"\midrule",
        *(_line(cells) for cells in rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]


def _line(cells: Sequence[str]) -> str:
    return " & ".join(map(escaped, cells)) + r" \\"
