"""The command llmexp sync copies runs to MLflow."""

from __future__ import annotations

from argparse import Namespace

from llmexp.cli.arguments import Parser, add_paths, command_parser, runs_in, tracker
from llmexp.cli.copying import copy_runs, refused
from llmexp.cli.pictures import draw_missing
from llmexp.errors import ConfigError


def parser() -> Parser:
    """Build the parser of the command's words."""
    parser = command_parser(
        "sync", "Copies runs to MLflow: those that a tracker missed, or that another machine made. Safe to repeat."
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
    parser.add_argument("--experiment", help="MLflow's; default: the one each run was planned with")
    return parser


def main(args: Namespace) -> int:
    """Draw missing pictures and copy run folders; copies that exist already are left alone."""
    runs = runs_in(args.paths)
    if not (args.uri or args.yes) and (why := refused(runs)):
        raise ConfigError(why)
    draw_missing(runs)
    return (
        0
        if copy_runs(runs, {key: value for key, value in (("uri", args.uri), ("experiment", args.experiment)) if value})
        else 1
    )
