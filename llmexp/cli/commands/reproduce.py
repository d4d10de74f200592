"""The command llmexp reproduce measures an earlier run again and compares the results."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from llmexp.cli.arguments import Parser, command_parser, one_run
from llmexp.cli.reproduce import reproduce


def parser() -> Parser:
    """Build the parser of the command's words."""
    parser = command_parser(
        "reproduce",
        "Measures a run again from its folder, shows what differs in the environment, and gives the verdict.",
    )
    parser.add_argument("run", type=Path, help="the run's folder")
    parser.add_argument("--yes", action="store_true", help="you know and trust what else its plan starts and contacts")
    return parser


def main(args: Namespace) -> int:
    """Measure the run again and judge; returns 1 where it is not reproduced."""
    return reproduce(one_run(args.run), trusted=args.yes)
