"""Parsing of words that are not overrides: flags may stand anywhere, and errors take one line."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Never

from llmexp.bundle.archive import is_bundle, unpacked
from llmexp.errors import ConfigError
from llmexp.record.folder import RunFolder, find_runs
from llmexp.record.paths import RealPaths
from llmexp.record.sweep_order import in_sweeps_order
from llmexp.record.tracking_uri import check_uri
from llmexp.terms import meant_by
from llmexp.version import __version__

COMMAND_NAMES = (
    "init",
    "plan",
    "advise",
    "calibrate",
    "report",
    "compare",
    "ab",
    "search",
    "status",
    "logs",
    "trace",
    "cancel",
    "sync",
    "ui",
    "doctor",
    "engines",
    "reproduce",
    "export",
    "schema",
    "test-extension",
)
OUTPUTS = "outputs"

# These are the values of Hydra's --info.
INFO = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")

# Flags whose values have other names: `for` is a word of Python.
_FLAGS = {"training_budget": "for"}


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are ConfigErrors."""

    def error(self, message: str) -> Never:
        """Raise ConfigError instead of printing the usage and exiting."""
        raise ConfigError(f"{message}; {_without_dashes(message)}{self.prog} --help explains")


def _without_dashes(message: str) -> str:
    """Say how to write a setting that was typed like a flag, as in other programs; empty for other errors."""
    found = re.search(r"unrecognized arguments: --([\w.-]+)(=\S+)?", message)
    if not found:
        return ""
    from llmexp.cli.check import keys  # the schema takes a fifth of the time in which a command starts

    name, value = found[1].replace("-", "_"), found[2] or "=<value>"
    meant = f"{name}{value}" if name in keys() else meant_by("key", name)
    return f"settings have no dashes: write {meant}; " if meant else ""


def add_overrides(parser: Parser) -> None:
    """Add the arguments that say which runs are meant."""
    parser.add_argument("overrides", nargs="*", help="group=option or key=value; commas make a sweep")
    parser.add_argument("-m", "--multirun", action="store_true", help="accepted but not needed: every run is a sweep")
    parser.add_argument("-cd", "--config-dir", help="a folder with more groups and options, such as model/mine.yaml")


def run_parser() -> Parser:
    """Build the parser of a run's flags, which have Hydra's names."""
    parser = Parser("llmexp", add_help=False, allow_abbrev=False)
    add_overrides(parser)
    parser.add_argument("-h", "--help", action="store_true", help="this text")
    parser.add_argument("--version", action="version", version=f"llmexp {__version__}")
    parser.add_argument(
        "-c", "--cfg", choices=("job", "hydra", "all"), help="show the configuration instead of running"
    )
    parser.add_argument("-p", "--package", help="with --cfg: only this part of it, such as model")
    parser.add_argument("--resolve", action="store_true", help="with --cfg: interpolations replaced by their values")
    parser.add_argument(
        "-i", "--info", nargs="?", const="all", choices=INFO, help="how Hydra found and merged the files"
    )
    parser.add_argument(
        "-sc", "--shell-completion", action="store_true", help='completion in bash: eval "$(llmexp -sc install=bash)"'
    )
    return parser


def command_parser(name: str, description: str) -> Parser:
    """Build the parser of a command's words."""
    return Parser(f"llmexp {name}", description=description, allow_abbrev=False)


def add_paths(parser: Parser) -> None:
    """Add the argument that names the folders of runs."""
    described = f"runs, sweeps, folders of them, or bundles of llmexp export; default {OUTPUTS}"
    parser.add_argument("paths", nargs="*", type=Path, default=[Path(OUTPUTS)], metavar="PATHS", help=described)


def tracker(uri: str) -> str:
    """Return the address unchanged if MLflow can use it; raises ConfigError otherwise."""
    check_uri(uri, "--uri")
    return uri


def runs_in(paths: Sequence[Path]) -> list[RunFolder]:
    """Find all runs below the paths, each once; raises ConfigError where there is none."""
    paths = [_place_of(path) for path in paths]
    folders = [unpacked(path) if is_bundle(path) else path for path in paths]
    real = RealPaths()
    found = {real.of(run.path): run for folder in folders for run in find_runs(folder)}
    if not found:
        raise ConfigError(f"no runs in {', '.join(map(str, paths))}: python -m llmexp method=Naive makes one")
    return in_sweeps_order(list(found.values()))


def _place_of(path: Path) -> Path:
    """Return a path that is there, or that of a sweep of this name in outputs; raises ConfigError for another."""
    if path.exists():
        return path
    if not path.is_absolute() and (Path(OUTPUTS) / path).exists():
        return Path(OUTPUTS) / path
    raise ConfigError(
        f"{path} does not exist, nor does {OUTPUTS}/{path}: name a run's folder, a sweep's or one that holds them"
    )


def one_run(path: Path) -> RunFolder:
    """Find the only run of a folder; raises ConfigError where there are several."""
    runs = runs_in([path])
    if len(runs) > 1:
        raise ConfigError(f"{path} holds {len(runs)} runs: name one of them, such as {runs[0].path}")
    return runs[0]


def refuse_flags(args: argparse.Namespace, dests: Sequence[str], command: str) -> None:
    """Raise ConfigError for the first flag of these names in `args` that was given."""
    for dest in dests:
        if getattr(args, dest):
            flag = _FLAGS.get(dest, dest.replace("_", "-"))
            raise ConfigError(f"--{flag} does not go with {command}")


def share(text: str) -> float:
    """Return the share that is written as 2% or 0.02; raises ConfigError for any other text."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 < value < 1:
        raise ConfigError(f"--margin is '{text}': write a share between 0 and 1, such as 2% or 0.02")
    return value
