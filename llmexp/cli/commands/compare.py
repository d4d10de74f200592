"""The command llmexp compare shows how two runs differ, and by how much."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from llmexp.cli.arguments import Parser, command_parser, one_run
from llmexp.report.compare import compare
from llmexp.report.terminal import print_comparison


def parser() -> Parser:
    """Build the parser of the command's words."""
    parser = command_parser("compare", "What differs between two runs, in what was asked and in what was measured.")
    parser.add_argument("a", type=Path, help="a run's folder")
    parser.add_argument("b", type=Path, help="another's")
    return parser


def main(args: Namespace) -> int:
    """Print the comparison."""
    print_comparison(compare(one_run(args.a), one_run(args.b)))
    return 0
