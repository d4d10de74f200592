"""The command llmexp doctor finds what on this machine would stop or disturb a measurement."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from llmexp.cli.arguments import OUTPUTS, Parser, add_overrides, command_parser
from llmexp.cli.doctor import examine, examine_for, print_findings
from llmexp.cli.words import jobs_of


def parser() -> Parser:
    """Build the parser of the command's words."""
    parser = command_parser(
        "doctor",
        "Finds what on this machine would stop or disturb a measurement, and says what to do about it. With a run's "
        "words it checks what that run needs. Starts nothing, does not import torch.",
    )
    add_overrides(parser)
    parser.add_argument(
        "--outputs",
        type=Path,
        default=Path(OUTPUTS),
        help=f"the folder that sweep.outputs will name; default {OUTPUTS}",
    )
    return parser


def main(args: Namespace) -> int:
    """Check this machine and say what to do; returns 1 where a check fails."""
    if not args.overrides:
        return 0 if print_findings(examine(args.outputs)) else 1
    plans = [job.plan for job in jobs_of(args)]
    return 0 if print_findings(examine_for(plans, by_slurm="hydra/launcher=slurm" in args.overrides)) else 1
