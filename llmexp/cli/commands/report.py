"""The command llmexp report shows the table of runs."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from llmexp.cli.arguments import Parser, add_paths, command_parser, runs_in
from llmexp.report.plots import draw_report
from llmexp.report.publish import publish
from llmexp.report.table import build_report
from llmexp.report.terminal import print_report
from llmexp.report.text import comma_separated, markdown


def parser() -> Parser:
    """Build the parser of the command's words."""
    parser = command_parser("report", "The table of runs, from their folders.")
    add_paths(parser)
    parser.add_argument("--format", choices=("terminal", "markdown", "csv"), default="terminal")
    parser.add_argument(
        "--largest-batch",
        action="store_true",
        help="of runs that differ in batch.micro alone: the smallest and the largest",
    )
    parser.add_argument(
        "--into", type=Path, metavar="FOLDER", help="leave it as FOLDER/<hardware>/<sweep>.md and .csv instead"
    )
    parser.add_argument("--figure", type=Path, metavar="FILE", help="draw it too: a PNG, SVG or PDF")
    return parser


def main(args: Namespace) -> int:
    """Print or write the table, and draw it."""
    found = build_report(runs_in(args.paths))
    table = found.largest_batches() if args.largest_batch else found
    if args.into:
        print(*publish(table, args.into), sep="\n")
    elif args.format == "terminal":
        print_report(table)
    else:
        print(markdown(table) if args.format == "markdown" else comma_separated(table), end="")
    if args.figure:
        draw_report(table, args.figure)
    return 0
