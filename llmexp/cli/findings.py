"""What `llmexp report findings` shows: published claims, or a person's, on runs and on published figures."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from llmexp.answers.claims import claims_decided
from llmexp.answers.versioned import line
from llmexp.cli.arguments import OUTPUTS, refuse_flags, runs_in
from llmexp.method import atom_codes
from llmexp.record.reading import plain
from llmexp.record.redact import redact
from llmexp.registry import references
from llmexp.report.columns import ReportTable
from llmexp.report.findings.claims import own_claims
from llmexp.report.findings.measured import rows_of_runs
from llmexp.report.findings.table import findings, findings_csv, findings_table
from llmexp.report.screen import as_table, console, write
from llmexp.report.table import Report, build_report
from llmexp.report.text import table_lines

_NOT_HERE = (
    "largest_batch",
    "sort",
    "training_budget",
    "explain",
    "into",
    "figure",
    "style",
    "html",
    "open",
    "setup",
    "missing",
    "loss",
)


def show_findings(args: Namespace, words: Sequence[str]) -> int:
    """Print a table of claims for each reference. Raises ConfigError for flags that belong to the table of runs."""
    refuse_flags(args, _NOT_HERE, "llmexp report findings, which takes --claims and --format")
    known = [(reference, rows) for reference in references() if (rows := reference.claim_rows())]
    published = tuple(row for _, rows in known for row in rows)
    own = own_claims(args.claims, atom_codes(), published) if args.claims else ()
    report = _report([Path(word) for word in words])
    measured = rows_of_runs(report.rows)
    decided = [(reference, findings(own or reference.claims(), measured, rows)) for reference, rows in known]
    if args.format == "json":
        print(line(claims_decided(decided, report.unreadable)))
        return 0
    for reference, found in decided:
        if args.format == "csv":
            print(redact(findings_csv(found, reference)), end="")
        elif args.format == "markdown":
            print(redact(plain("\n".join(table_lines(findings_table(found, reference))))).strip())
        else:
            _print(findings_table(found, reference))
    if args.format not in ("csv", "markdown"):
        for reason in report.unreadable:
            write(console(), f"unreadable: {reason}")
    return 0


def _print(table: ReportTable) -> None:
    screen = console()
    write(screen, table.title)
    shown = as_table(table.columns)
    for column in shown.columns:
        column.vertical = "top"  # cells of several lines begin beside their id
    screen.print(shown)
    for words in table.legend:
        write(screen, words, "dim")


def _report(folders: Sequence[Path]) -> Report:
    """Read the runs; without any, and without a folder that was named, the published figures are all there is."""
    if not folders and not Path(OUTPUTS).exists():
        return Report(())
    return build_report(runs_in(folders or [Path(OUTPUTS)]))
