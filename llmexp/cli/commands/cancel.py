"""The command llmexp cancel ends SLURM jobs."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from llmexp.cli.arguments import Parser, command_parser, runs_in
from llmexp.sweep.cluster import cancel


def parser() -> Parser:
    """Build the parser of the command's words."""
    parser = command_parser(
        "cancel",
        "Ends the queued or running SLURM jobs of runs. Such runs become killed; the same sweep measures them again.",
    )
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATHS", help="runs, sweeps or folders of them")
    return parser


def main(args: Namespace) -> int:
    """End the jobs; returns 1 where something is left."""
    return 0 if cancel(runs_in(args.paths), args.paths) else 1
