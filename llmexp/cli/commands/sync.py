"""The command llmexp sync copies runs to their trackers."""

from __future__ import annotations

from argparse import Namespace

from llmexp.cli.arguments import Parser, add_paths, command_parser, runs_in, tracker
from llmexp.cli.copying import copy_also, copy_runs, refused
from llmexp.cli.pictures import draw_missing
from llmexp.errors import ConfigError, unknown
from llmexp.registry import tracker_names

MLFLOW = "mlflow"


def parser() -> Parser:
    """Build the parser of the command's words."""
    parser = command_parser(
        "sync",
        "Copies runs to MLflow, and to the trackers that tracking.also named: those that a tracker missed, or that "
        "another machine made. Safe to repeat.",
    )
    add_paths(parser)
    parser.add_argument(
        "--uri",
        type=tracker,
        help="default: the one each run was planned with, else MLFLOW_TRACKING_URI, else SQLite in outputs/mlflow.db",
    )
    parser.add_argument(
        "--yes", action="store_true", help="you know and trust the trackers that the runs were planned with"
    )
    parser.add_argument("--experiment", help="MLflow's, and W&B's project; default: the one each run was planned with")
    parser.add_argument(
        "--to",
        metavar="TRACKER",
        help=f"only to these, between commas: {', '.join((MLFLOW, *tracker_names()))}",
    )
    return parser


def main(args: Namespace) -> int:
    """Draw missing pictures and copy run folders; copies that exist already are left alone."""
    to = _named(args.to)
    runs = runs_in(args.paths)
    to_mlflow = to is None or MLFLOW in to
    if to_mlflow and not (args.uri or args.yes) and (why := refused(runs)):
        raise ConfigError(why)
    draw_missing(runs)
    chosen = {key: value for key, value in (("uri", args.uri), ("experiment", args.experiment)) if value}
    well = copy_also(runs, None if to is None else [name for name in to if name != MLFLOW], args.experiment)
    if to_mlflow:
        well = copy_runs(runs, chosen) and well
    return 0 if well else 1


def _named(to: str | None) -> list[str] | None:
    """Return the trackers that --to names, None without it; raises ConfigError for one that there is not."""
    names = [name.strip() for name in to.split(",")] if to is not None else None
    known = [MLFLOW, *tracker_names()]
    for name in names or ():
        if name not in known:
            raise unknown("tracker", name, known)
    return names
