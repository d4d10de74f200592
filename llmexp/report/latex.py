"""The report as LaTeX: for each section a table with the rules of booktabs, its notes, and the set-up in words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from llmexp.record.reading import plain
from llmexp.record.redact import redact
from llmexp.report.columns import ReportTable
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
    answers = [line.rstrip(".") for line in section.leaders]
    runs = replace(section.table, legend=[*answers, *section.table.legend])
    tables = map(float_of, [runs, *section.asked_tables])
    setup = setup_paragraph(section)
    return "\n\n".join([*tables, *([escaped(setup)] if setup else [])])


def float_of(table: ReportTable) -> str:
    """Return a table with its caption, and its legend below it."""
    lines = [
        r"\begin{table}[t]",
        r"\centering",
        rf"\caption{{{escaped(table.title)}}}",
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        *_tabular(table),
        r"}",
        *([r"\par\smallskip\footnotesize\raggedright"] if table.legend else []),
        *(rf"{escaped(line)}.\par" for line in table.legend),
        r"\end{table}",
    ]
    return "\n".join(lines)


def _tabular(table: ReportTable) -> list[str]:
    kinds = "".join("l" if column.left else "r" for column in table.columns)
    return [
        rf"\begin{{tabular}}{{{kinds}}}",
        r"\toprule",
        _line(table.headers),
        r"\midrule",
        *(_line(cells) for cells in table.rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]


def _line(cells: Sequence[str]) -> str:
    return " & ".join(map(escaped, cells)) + r" \\"
