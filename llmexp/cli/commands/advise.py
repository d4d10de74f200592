"""The command llmexp advise ranks the configurations that a command line leaves open."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from llmexp.advice.goal import DEFAULT, GOALS, read_goal
from llmexp.answers.advised import options_advised
from llmexp.answers.versioned import line
from llmexp.cli.advice_page import advice_page
from llmexp.cli.advice_table import advice_text, choice
from llmexp.cli.advised import Asked, advised
from llmexp.cli.arguments import Parser, add_overrides, command_parser
from llmexp.cli.pages import check_page, write_page
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
    parser.add_argument("--top", type=int, default=10, metavar="N", help="the options to show in the terminal (10)")
    parser.add_argument("--json", action="store_true", help="print all options as one object of JSON")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write them as one page that needs no network")
    parser.add_argument(
        "--open", action="store_true", help="show the page in the browser; without --html a passing one"
    )
    return parser


def main(args: Namespace) -> int:
    """Print the ranking."""
    is_page = bool(args.html or args.open)
    if args.json and is_page:
        raise ConfigError("--json prints one object alone: leave --html and --open out")
    if args.html:
        check_page(args.html)
    asked = asked_of(args)
    ranking = advised(args, asked)
    if args.json:
        print(line(options_advised(ranking, list(choice(ranking)))))
    elif is_page:
        count = len(ranking.sure) + len(ranking.perhaps)
        write_page(
            advice_page(ranking, asked, args.overrides), f"{count} option{'s' * (count != 1)}", args.html, args.open
        )
    else:
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
