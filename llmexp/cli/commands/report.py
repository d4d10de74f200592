"""The command llmexp report shows the table of runs."""

from __future__ import annotations

import webbrowser
from argparse import Namespace
from pathlib import Path
from tempfile import mkdtemp

from llmexp.cli.arguments import OUTPUTS, Parser, command_parser, runs_in
from llmexp.cli.findings import FINDINGS, path_or_findings, show_findings
from llmexp.errors import ConfigError, RecordError
from llmexp.record.folder import write_atomically
from llmexp.report.latex import latex
from llmexp.report.page.document import page
from llmexp.report.plots import draw_report
from llmexp.report.publish import publish
from llmexp.report.setup_paragraph import setup_paragraph
from llmexp.report.stated_training import read_stated
from llmexp.report.table import Report, build_report
from llmexp.report.terminal import print_report
from llmexp.report.text import comma_separated, markdown

_TEXTS = {"markdown": markdown, "csv": comma_separated, "latex": latex}


def parser() -> Parser:
    """Build the parser of the command's words."""
    parser = command_parser("report", "The table of runs, from their folders.")
    parser.add_argument(
        "paths",
        nargs="*",
        type=path_or_findings,
        default=[Path(OUTPUTS)],
        metavar="PATHS",
        help=f"runs, sweeps, folders of them, or bundles of llmexp export; default {OUTPUTS}; "
        "'findings PATHS' decides the paper's claims on them",
    )
    parser.add_argument("--format", choices=("terminal", "markdown", "csv", "latex"), default="terminal")
    parser.add_argument(
        "--largest-batch",
        action="store_true",
        help="of runs that differ in batch.micro alone: the smallest and the largest",
    )
    parser.add_argument(
        "--into", type=Path, metavar="FOLDER", help="leave it as FOLDER/<hardware>/<sweep>.md and .csv instead"
    )
    parser.add_argument("--figure", type=Path, metavar="FILE", help="draw it too: a PNG, SVG or PDF")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write it as one page that needs no network")
    parser.add_argument(
        "--open", action="store_true", help="show the page in the browser; without --html a passing one"
    )
    parser.add_argument(
        "--for",
        dest="stated",
        type=read_stated,
        metavar="TRAINING",
        help="add what a whole training would take by these speeds: tokens=300e9, or epochs=3",
    )
    parser.add_argument("--setup", action="store_true", help="print the set-up as a paragraph for a paper instead")
    parser.add_argument(
        "--claims", type=Path, metavar="FILE", help="with findings: claims of your own, as rows of YAML"
    )
    return parser


def main(args: Namespace) -> int:
    """Print or write the table, and draw it."""
    paths = [Path(path) for path in args.paths]
    if args.paths[:1] == [FINDINGS]:
        return show_findings(args, paths[1:])
    if args.claims:
        raise ConfigError(f"--claims {args.claims} is of llmexp report findings")
    found = build_report(runs_in(paths))
    table = found.largest_batches() if args.largest_batch else found
    table = table.stating(args.stated) if args.stated else table
    if args.into:
        print(*publish(table, args.into), sep="\n")
    elif args.setup:
        print(*filter(None, map(setup_paragraph, table.sections)), sep="\n\n")
    elif args.format != "terminal":
        print(_TEXTS[args.format](table), end="")
    elif not (args.html or args.open):
        print_report(table)
    if args.figure:
        draw_report(table, args.figure)
    if args.html or args.open:
        _write_page(table, args.html or Path(mkdtemp(prefix="llmexp-")) / "report.html", args.open)
    return 0


def _write_page(table: Report, path: Path, shown: bool) -> None:
    """Write the page, say where, and show it; raises RecordError where it cannot be written."""
    if path.is_dir():
        raise ConfigError(f"--html {path}: is a folder; name a file in it, such as {path / 'report.html'}")
    text = page(table)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)
    except OSError as error:
        raise RecordError(f"{path} cannot be written: {error}") from None
    print(f"{path}: {len(table.rows)} runs, {len(text.encode()) / 1e6:.1f} MB")
    if shown and not webbrowser.open(path.resolve().as_uri()):
        print("no browser is found here; open that file in one")
