"""llmexp cancel: the end of SLURM jobs."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from llmexp.cli.arguments import Parser, command_parser, runs_in
from llmexp.sweep.cluster import cancel


def parser() -> Parser:
    """Say what words it takes."""
    parser = command_parser(
        "cancel",
        "Ends the SLURM jobs, queued or running, of runs; these say killed then, and the same sweep does them again.",
    )
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATHS", help="runs, sweeps or folders of them")
    return parser


def main(args: Namespace) -> int:
    """End the jobs; 1 where something is left."""
    return 0 if cancel(runs_in(args.paths), args.paths) else 1
