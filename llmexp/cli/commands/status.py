"""The command llmexp status shows the state of every run."""

from __future__ import annotations

from argparse import Namespace

from llmexp.cli.arguments import Parser, add_paths, command_parser, runs_in
from llmexp.cli.status import print_status
from llmexp.cli.watch import show


def parser() -> Parser:
    """Build the parser of the command's words."""
    parser = command_parser("status", "Shows the state of every run, killed runs too.")
    add_paths(parser)
    parser.add_argument("--watch", action="store_true", help="a live picture until all of them have ended")
    return parser


def main(args: Namespace) -> int:
    """Print the state of every run, or show it until all have ended."""
    if args.watch:
        from rich.console import Console  # nothing else of the command needs it

        show(args.paths, Console())
        return 0
    print_status(runs_in(args.paths))
    return 0
