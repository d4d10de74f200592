"""The command llmexp report shows the table of runs."""

from __future__ import annotations

from argparse import ArgumentTypeError, Namespace
from collections.abc import Sequence
from contextlib import suppress
from math import isfinite
from pathlib import Path

from llmexp.answers.reported import runs_reported
from llmexp.answers.versioned import line
from llmexp.cli.arguments import OUTPUTS, Parser, command_parser, runs_in
from llmexp.cli.pages import write_page
from llmexp.errors import ConfigError
from llmexp.registry import references
from llmexp.report.latex import latex
from llmexp.report.page.document import page
from llmexp.report.picture import FORMATS
from llmexp.report.plots import draw_for_paper, draw_report
from llmexp.report.publish import publish
from llmexp.report.setup_paragraph import setup_paragraph
from llmexp.report.sorting import sorted_by
from llmexp.report.table import Report, build_report
from llmexp.report.terminal import print_report
from llmexp.report.text import comma_separated, markdown
from llmexp.report.training_budget import read_training_budget


def _json(report: Report) -> str:
    return line(runs_reported(report)) + "\n"


_TEXTS = {
    "markdown": markdown,
    "csv": comma_separated,
    "latex": latex,
    "json": _json,
}
FINDINGS = "findings"
# How --figure draws: as the report does, or for a column of a paper.
STYLES = ("report", "paper")


def parser() -> Parser:
    """Build the parser of the command's words."""
    parser = command_parser("report", "The table of runs, from their folders.")
    parser.add_argument(
        "paths",
        nargs="*",
        default=[OUTPUTS],
        metavar="PATHS",
        help=f"runs, sweeps, folders of them, or bundles of llmexp export; default {OUTPUTS}; "
        f"'findings PATHS' decides published claims on them, '{_names()} [TABLES] PATHS' fills published tables",
    )
    _add_form(parser)
    _add_content(parser)
    parser.add_argument(
        "--claims", type=Path, metavar="FILE", help="with findings: claims of your own, as rows of YAML"
    )
    parser.add_argument(
        "--missing", action="store_true", help=f"with {_names()}: print the commands that fill the cells without a run"
    )
    return parser


def _add_form(parser: Parser) -> None:
    """Add what the table is written as, and where to."""
    parser.add_argument("--format", choices=("terminal", *_TEXTS), default="terminal")
    parser.add_argument("--json", dest="format", action="store_const", const="json", help="for programs: --format json")
    parser.add_argument(
        "--into", type=Path, metavar="FOLDER", help="leave it as FOLDER/<hardware>/<sweep>.md and .csv instead"
    )
    parser.add_argument("--figure", type=_picture, metavar="FILE", help="draw it too: a PNG, SVG or PDF")
    parser.add_argument(
        "--style", choices=STYLES, help="with --figure: paper draws its charts as wide as a column, without titles"
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write it as one page that needs no network")
    parser.add_argument(
        "--open", action="store_true", help="show the page in the browser; without --html a passing one"
    )
    parser.add_argument("--explain", action="store_true", help="say below the table what each column means")
    parser.add_argument("--setup", action="store_true", help="print the set-up as a paragraph for a paper instead")


def _picture(name: str) -> Path:
    """Return the path of a picture; its suffix names a format that can be written."""
    path = Path(name)
    if path.suffix.lower().removeprefix(".") not in FORMATS:
        choices = ", ".join(f".{kind}" for kind in FORMATS)
        raise ArgumentTypeError(f"{name}: a picture's name ends in {choices}")
    return path


def _add_content(parser: Parser) -> None:
    """Add which rows the table has, in which order, and what is added to them."""
    parser.add_argument(
        "--largest-batch",
        action="store_true",
        help="of runs that differ in batch.micro alone: the smallest and the largest",
    )
    parser.add_argument(
        "--sort", metavar="COLUMN", help="rows by a column of the CSV, such as tokens_per_s; default: the sweep's order"
    )
    parser.add_argument(
        "--for",
        dest="training_budget",
        type=read_training_budget,
        metavar="TRAINING",
        help="add what a whole training would take by these speeds: tokens=300e9, or epochs=3",
    )
    parser.add_argument(
        "--loss",
        type=_loss,
        metavar="LOSS",
        help="with measure.tokens: add what each choice takes to this loss; with several seeds it is shown unasked, "
        "to a loss of the baseline's",
    )


def _loss(text: str) -> float:
    """Read a loss; raises ConfigError with one line."""
    with suppress(ValueError):
        if isfinite(loss := float(text)) and loss > 0:
            return loss
    raise ConfigError(f"--loss {text}: must be a finite number of nats above 0, as in --loss 2.31")


def _names() -> str:
    return " or ".join(reference.name for reference in references())


def _view(args: Namespace, name: str, words: Sequence[str]) -> int | None:
    """Show claims, or a reference's tables; None where the name is neither's, as ./findings and ./paper are not."""
    found = {reference.name: reference for reference in references()}
    # Both views take a while to import, and the table of runs needs neither.
    if name == FINDINGS:
        from llmexp.cli.findings import show_findings

        return show_findings(args, words)
    if name in found:
        from llmexp.cli.published import show_published

        return show_published(found[name], args, words)
    return None


def _refuse_others(args: Namespace) -> None:
    """Raise ConfigError for flags of other reports, and for a style without a picture."""
    if args.claims:
        raise ConfigError(f"--claims {args.claims} is of llmexp report findings")
    if args.missing:
        raise ConfigError(f"--missing is of llmexp report {_names()}")
    if args.style and not args.figure:
        raise ConfigError(f"--style {args.style} is of --figure FILE, which is missing")


def main(args: Namespace) -> int:
    """Print or write the table, and draw it."""
    shown = _view(args, args.paths[0], args.paths[1:]) if args.paths else None
    if shown is not None:
        return shown
    _refuse_others(args)
    found = build_report(runs_in([Path(path) for path in args.paths]))
    table = found.largest_batches() if args.largest_batch else found
    table = sorted_by(table, args.sort) if args.sort else table
    table = table.with_training_budget(args.training_budget) if args.training_budget else table
    table = table.with_target_loss(args.loss) if args.loss else table
    if args.into:
        print(*publish(table, args.into), sep="\n")
    elif args.setup:
        print(*filter(None, map(setup_paragraph, table.sections)), sep="\n\n")
    elif args.format != "terminal":
        print(_TEXTS[args.format](table), end="")
    elif not (args.html or args.open):
        print_report(table, explain=args.explain)
    if args.figure:
        _draw(table, args.figure, args.style)
    if args.html or args.open:
        write_page(page(table), f"{len(table.rows)} run{'s' * (len(table.rows) != 1)}", args.html, args.open)
    return 0


def _draw(table: Report, path: Path, style: str | None) -> None:
    """Draw the report's pictures; of those for a paper print what their captions have to say."""
    if style != "paper":
        draw_report(table, path)
        return
    written = draw_for_paper(table, path)
    if not written:
        raise ConfigError(f"--figure {path}: these runs have nothing to draw")
    for figure in written:
        print(f"{figure.path}: {figure.caption}")
