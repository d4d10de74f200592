"""The command llmexp advise ranks the configurations that a command line leaves open."""

from __future__ import annotations

from argparse import Namespace

from llmexp.advice.goal import DEFAULT, GOALS, read_goal
from llmexp.cli.advice_table import advice_text
from llmexp.cli.advised import Asked, advised
from llmexp.cli.arguments import Parser, add_overrides, command_parser
from llmexp.errors import ConfigError
from llmexp.report.training_budget import EPOCHS, read_training_budget

_GOAL = "goal="


def parser() -> Parser:
    """Build the parser of the command's words."""
    parser = command_parser(
        "advise",
        "Ranks the configurations that a command line leaves open, by prediction: methods, engines, degrees, batches, "
        "precisions. Each has its memory, its speed with an interval, and the words that start it. Starts nothing. "
        f"goal= is one of {', '.join(GOALS)}.",
    )
    add_overrides(parser)
    parser.add_argument(
        "--for",
        dest="training",
        type=read_training_budget,
        metavar="TRAINING",
        help="what a whole training would take, as in tokens=300e9; budget.usd= then limits its price",
    )
    parser.add_argument("--global-batch", type=int, metavar="N", help="samples of a step of all replicas together")
    parser.add_argument("--plain", action="store_true", help="leave out what changes the mathematics")
    parser.add_argument("--top", type=int, default=10, metavar="N", help="the options to show (10)")
    return parser


def main(args: Namespace) -> int:
    """Print the ranking."""
    ranking = advised(args, asked_of(args))
    print(advice_text(ranking, args.top))
    return 0


def asked_of(args: Namespace) -> Asked:
    """Take goal= out of the overrides; raises ConfigError for what cannot be asked."""
    goals = [word.removeprefix(_GOAL) for word in args.overrides if word.startswith(_GOAL)]
    args.overrides = [word for word in args.overrides if not word.startswith(_GOAL)]
    for name, value in (("--global-batch", args.global_batch), ("--top", args.top)):
        if value is not None and value < 1:
            raise ConfigError(f"{name} {value}: must be 1 or more")
    if args.training and args.training.kind == EPOCHS:
        raise ConfigError(f"--for epochs={args.training.said}: only a run counts the data's records: write tokens=")
    return Asked(read_goal((goals or [DEFAULT])[-1], args.training), args.plain, args.global_batch)
