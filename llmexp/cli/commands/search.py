"""The command llmexp search finds the values of any keys for which a metric is best."""

from __future__ import annotations

import shlex
import sys
from argparse import Namespace
from contextlib import nullcontext, redirect_stdout
from typing import get_args

from llmexp.answers.searched import trials_searched
from llmexp.answers.versioned import line
from llmexp.cli.app import hydra_app
from llmexp.cli.arguments import Parser, add_overrides, command_parser
from llmexp.cli.face import idle_line, idle_task, sweep
from llmexp.cli.overrides import accept, print_replaced
from llmexp.cli.search import SWEEPER
from llmexp.cli.words import own_folder, search_path
from llmexp.errors import ConfigError
from llmexp.launch.display import enduring
from llmexp.sweep.search.trial import PrunerName, SamplerName, SearchOptions

_DEFAULTS = SearchOptions()
_DESCRIPTION = (
    "Finds the values of any keys for which a metric is best. Commas, choice(), range(), interval() and tag(log, "
    "interval()) say what is searched; each trial is a run like any other. The same command goes on with a search, and "
    "several at once share it. The exit code is 0 where there is a best trial and none failed."
)


def parser() -> Parser:
    """Build the parser of the command's words."""
    parser = command_parser("search", _DESCRIPTION)
    add_overrides(parser)
    parser.add_argument("--minimize", metavar="METRIC", help="the metric that is sought: loss, step_time_s, …")
    parser.add_argument("--maximize", metavar="METRIC", help="the same where more is better: tokens_per_s, mfu, …")
    parser.add_argument("--trials", default=_DEFAULTS.trials, help=f"of all drivers; default {_DEFAULTS.trials}")
    parser.add_argument("--seed", default=_DEFAULTS.seed, help="of the choice of points; default 0")
    parser.add_argument(
        "--sampler",
        default=_DEFAULTS.sampler,
        help=f"{' or '.join(get_args(SamplerName))}; default {_DEFAULTS.sampler}",
    )
    parser.add_argument(
        "--pruner",
        help=f"ends trials by their loss so far: {', '.join(get_args(PrunerName))}; default median for a loss",
    )
    parser.add_argument("--json", action="store_true", help="print the trials as JSON, one per line")
    return parser


def main(args: Namespace) -> int:
    """Search, print the trials and return the exit code."""
    if any(word.lstrip("+").startswith("hydra/sweeper") for word in args.overrides):
        raise ConfigError("hydra/sweeper does not go with llmexp search, which is one: leave it out")
    if task := idle_task():
        print(f"llmexp: {idle_line(task)}", file=sys.stderr)
        return 0
    folder = own_folder(args)
    with hydra_app(folder) as hydra, enduring():
        print_replaced(args.overrides)
        words = accept(hydra.config_loader, [*search_path(folder), *args.overrides, *sweeper_words(args)])
        with redirect_stdout(sys.stderr) if args.json else nullcontext():
            swept = sweep(hydra, words)
    if args.json and swept.searched:
        print(*map(line, trials_searched(swept.searched)), sep="\n")
    return swept.code


def sweeper_words(args: Namespace) -> list[str]:
    """Return the options as keys of the sweeper."""
    given = {name: getattr(args, name) for name in ("minimize", "maximize", "trials", "seed", "sampler", "pruner")}
    return [
        f"hydra/sweeper={SWEEPER}",
        *(f"hydra.sweeper.{name}={shlex.quote(str(value))}" for name, value in given.items() if value is not None),
    ]
