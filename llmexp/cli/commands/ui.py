"""The command llmexp ui serves MLflow's pages on this machine."""

from __future__ import annotations

import os
from argparse import ArgumentTypeError, Namespace
from pathlib import Path

from llmexp.cli.arguments import OUTPUTS, Parser, command_parser, tracker
from llmexp.cli.copying import copy_missing
from llmexp.cli.status import jobs_under_way
from llmexp.errors import ConfigError
from llmexp.record.folder import find_runs
from llmexp.record.mlflow import serve_ui
from llmexp.schema import TrackingConfig


def parser() -> Parser:
    """Build the parser of the command's words."""
    parser = command_parser("ui", "Serves MLflow's pages on 127.0.0.1, until Ctrl-C.")
    parser.add_argument("--port", type=_port, default=5000)
    parser.add_argument("--uri", type=tracker, help="default: MLFLOW_TRACKING_URI, else SQLite in outputs/mlflow.db")
    parser.add_argument(
        "--outputs", type=Path, default=Path(OUTPUTS), help=f"where sweep.outputs is; default {OUTPUTS}"
    )
    return parser


def main(args: Namespace) -> int:
    """Serve the pages until Ctrl-C, with every run that has ended by now."""
    elsewhere = args.outputs == Path(OUTPUTS) and (args.uri or os.environ.get("MLFLOW_TRACKING_URI"))
    if not args.outputs.is_dir() and not elsewhere:
        raise ConfigError(
            f"no folder {args.outputs}: set --outputs to the folder of sweep.outputs; python -m llmexp method=Naive "
            f"makes a run"
        )
    runs = find_runs(args.outputs)
    jobs_under_way(runs)
    copy_missing(runs)
    return serve_ui(TrackingConfig(name="mlflow", uri=args.uri), args.port, args.outputs)


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise ArgumentTypeError(f"{text} is not a port: write a whole number from 1 to 65535")
    return int(text)
