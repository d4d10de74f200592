"""The command llmexp plan shows what a command line would run."""

from __future__ import annotations

from argparse import Namespace

from llmexp.cli.arguments import Parser, add_overrides, command_parser
from llmexp.cli.show import plan_text
from llmexp.cli.words import jobs_of
from llmexp.sweep.run import affordable


def parser() -> Parser:
    """Build the parser of the command's words."""
    parser = command_parser(
        "plan",
        "What a command line would run: atoms, degrees, memory, native configuration, command. Starts "
        "nothing, needs no torch and no GPU.",
    )
    add_overrides(parser)
    parser.add_argument("--json", action="store_true", help="the plans themselves, one a line")
    return parser


def main(args: Namespace) -> int:
    """Print the plans, and for several plans also what they will cost."""
    plans = [job.plan for job in jobs_of(args)]
    for index, plan in enumerate(plans):
        print(plan.model_dump_json() if args.json else "\n" * bool(index) + plan_text(plan))
    if len(plans) > 1 and not args.json:
        print()
        affordable(plans)
    return 0
