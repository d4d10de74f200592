"""The command llmexp logs shows what a run printed."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from llmexp.cli.arguments import Parser, command_parser, one_run
from llmexp.cli.logs import print_logs


def parser() -> Parser:
    """Build the parser of the command's words."""
    parser = command_parser("logs", "Shows what a run's SLURM job, launcher and ranks printed, also while it runs.")
    parser.add_argument("run", type=Path, help="the run's folder")
    parser.add_argument("-f", "--follow", action="store_true", help="follow until the run ends")
    return parser


def main(args: Namespace) -> int:
    """Print the logs."""
    print_logs(one_run(args.run), args.follow)
    return 0
