"""The command llmexp advise ranks the configurations that a command line leaves open."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from llmexp.advice.goal import GOALS
from llmexp.advice.ranking import Ranking
from llmexp.answers.advised import options_advised
from llmexp.answers.versioned import line
from llmexp.cli.advice_page import advice_page
from llmexp.cli.advice_table import advice_text, choice
from llmexp.cli.advised import Asked, advised, asked_of
from llmexp.cli.arguments import Parser, add_overrides, command_parser
from llmexp.cli.deciding import decide, deciding_lines, in_turns
from llmexp.cli.pages import check_page, write_page
from llmexp.errors import ConfigError
from llmexp.report.training_budget import read_training_budget


def parser() -> Parser:
    """Build the parser of the command's words."""
    parser = command_parser(
        "advise",
        "Ranks the configurations that a command line leaves open, by prediction: methods, engines, degrees, batches, "
        "precisions. Each has its memory, its speed with an interval, and the words that start it. Without --run "
        f"nothing is started. goal= is one of {', '.join(GOALS)}.",
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
    parser.add_argument(
        "--run",
        type=int,
        metavar="N",
        help="measure N options that predictions cannot tell apart, and rank again; more than 4 take few steps at "
        "first, and the faster half of them more",
    )
    parser.add_argument("--top", type=int, default=10, metavar="N", help="the options to show in the terminal (10)")
    parser.add_argument("--json", action="store_true", help="print all options as one object of JSON")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write them as one page that needs no network")
    parser.add_argument(
        "--open", action="store_true", help="show the page in the browser; without --html a passing one"
    )
    return parser


def main(args: Namespace) -> int:
    """Print the ranking, with --run after what was measured for it; return the exit code."""
    is_page = bool(args.html or args.open)
    if args.json and (is_page or args.run):
        raise ConfigError(f"--json prints one object alone: leave {'--html and --open' if is_page else '--run'} out")
    if args.html:
        check_page(args.html)
    typed, asked = [*args.overrides], asked_of(args)
    ranking, code = advised(args, asked), 0
    if args.run:
        if turns := in_turns(ranking, typed):
            args.overrides += turns
            ranking = advised(args, asked)
        ranking, code = decide(args, asked, ranking, args.run)
    _show(args, asked, ranking, typed)
    return code


def _show(args: Namespace, asked: Asked, ranking: Ranking, typed: Sequence[str]) -> None:
    """Print the ranking as text or JSON, or write its page."""
    if args.json:
        print(line(options_advised(ranking, list(choice(ranking)))))
    elif args.html or args.open:
        count = len(ranking.sure) + len(ranking.perhaps)
        write_page(
            advice_page(ranking, asked, args.overrides), f"{count} option{'s' * (count != 1)}", args.html, args.open
        )
    else:
        print(advice_text(ranking, args.top))
        if lines := [*deciding_lines(ranking, [*typed, *_flags(args)])]:
            print("", *lines, sep="\n")


def _flags(args: Namespace) -> list[str]:
    """Return the flags that say what is asked."""
    training = f"{args.training.kind}={args.training.said}" if args.training else None
    given = {"--for": training, "--global-batch": args.global_batch, "--config-dir": args.config_dir}
    valued = [word for flag, value in given.items() if value is not None for word in (flag, str(value))]
    return [*valued, *["--plain"] * args.plain]
