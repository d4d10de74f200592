"""The verdicts on all claims as a table: on a terminal, as Markdown, as CSV."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from llmexp.record.reading import as_cell
from llmexp.report.columns import Column, ReportTable
from llmexp.report.findings.claims import Claim, Undecided
from llmexp.report.findings.rows import ClaimRow, doubtful
from llmexp.report.findings.verdict import CANNOT_TELL, FAILS, HOLDS, PARTLY, Answer
from llmexp.report.references.reference import Reference

_DOUBT = "?"
_WIDEST_STATEMENT, _WIDEST_NUMBERS = 38, 44
LEGEND = (
    "cannot tell: the rows that decide it are missing, no table has them, or the interval allows two verdicts",
    "? a figure that decides it is doubtful, or of a run that is not stable; --format csv names it",
    "limits of each claim: docs/paper.md",
)


@dataclass(frozen=True)
class FindingLine:
    """A claim with its verdict on runs and on published rows."""

    claim: Claim | Undecided
    yours: Answer
    published: Answer


def findings(
    claims: Sequence[Claim | Undecided], rows: Sequence[ClaimRow], published: Sequence[ClaimRow]
) -> list[FindingLine]:
    """Decide every claim on rows of runs, and by the same function on published rows."""
    return [FindingLine(claim, claim.answer(rows), claim.answer(published)) for claim in claims]


def findings_table(found: Sequence[FindingLine], reference: Reference) -> ReportTable:
    """Return the table: of two sets of numbers yours are shown where they decide, else the reference's."""
    name, counts = reference.name, Counter(finding.published.verdict for finding in found)
    counted = ", ".join(f"{verdict} {counts[verdict]}" for verdict in (HOLDS, PARTLY, FAILS, CANNOT_TELL))
    columns = (
        Column("id", tuple(finding.claim.id for finding in found), left=True),
        Column("claim", tuple(finding.claim.statement for finding in found), left=True, widest=_WIDEST_STATEMENT),
        Column("yours", tuple(_marked(finding.yours) for finding in found), left=True),
        Column(name, tuple(_marked(finding.published) for finding in found), left=True),
        Column("numbers", tuple(_numbers(finding, name) for finding in found), left=True, widest=_WIDEST_NUMBERS),
    )
    return ReportTable(f"{len(found)} claims; on {reference.title}'s cells: {counted}", columns, LEGEND)


def findings_csv(found: Sequence[FindingLine], reference: Reference) -> str:
    """Return CSV: a line a claim, with all numbers and the names of the doubtful figures that decide it."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    sides = ("yours", reference.name)
    writer.writerow(["id", "statement", *(f"{side}{part}" for side in sides for part in ("", "_numbers", "_doubtful"))])
    for finding in found:
        answers = (finding.yours, finding.published)
        told = [[answer.verdict, answer.numbers, "; ".join(doubtful(answer.used))] for answer in answers]
        writer.writerow(map(as_cell, [finding.claim.id, finding.claim.statement, *told[0], *told[1]]))
    return text.getvalue()


def _marked(answer: Answer) -> str:
    return f"{answer.verdict} {_DOUBT}" if doubtful(answer.used) else answer.verdict


def _numbers(finding: FindingLine, name: str) -> str:
    if finding.yours.used:
        return f"yours: {finding.yours.numbers}"
    return f"{name}: {finding.published.numbers}" if finding.published.used else finding.published.numbers
