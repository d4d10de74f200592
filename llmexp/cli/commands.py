"""The commands beside the run itself: plan, report, compare, status, logs, cancel, sync, ui, doctor, engines, reproduce."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llmexp.cli.arguments import COMMAND_NAMES, Parser, add_overrides
from llmexp.errors import ConfigError, LlmexpError
from llmexp.record.reading import plain

if TYPE_CHECKING:
    from llmexp.record.folder import RunFolder

OUTPUTS = "outputs"


def plan(words: Sequence[str]) -> int:
    """Print what a command line would run."""
    parser = _parser(
        "plan", "What a command line would run: atoms, degrees, memory, native configuration, command. Starts nothing, needs no torch and no GPU."
    )
    add_overrides(parser)
    parser.add_argument("--json", action="store_true", help="the plans themselves, one a line")
    args = parser.parse_intermixed_args(words)
    from llmexp.cli.run import jobs_of
    from llmexp.cli.show import plan_text

    jobs = jobs_of(args)
    for index, job in enumerate(jobs):
        print(job.plan.model_dump_json() if args.json else "\n" * bool(index) + plan_text(job.plan))
    if len(jobs) > 1 and not args.json:
        from llmexp.sweep.run import affordable

        print()
        affordable([job.plan for job in jobs])
    return 0


def report(words: Sequence[str]) -> int:
    """Print the table of runs."""
    parser = _parser("report", "The table of runs, from their folders.")
    _add_paths(parser)
    parser.add_argument("--format", choices=("terminal", "markdown", "csv"), default="terminal")
    parser.add_argument("--largest-batch", action="store_true", help="of runs that differ in batch.micro alone: the smallest and the largest")
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="leave it as FOLDER/<hardware>/<sweep>.md and .csv instead")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="draw it too: a PNG, SVG or PDF")
    args = parser.parse_args(words)
    from llmexp.report.publish import publish
    from llmexp.report.table import build_report
    from llmexp.report.terminal import print_report
    from llmexp.report.text import comma_separated, markdown

    found = build_report(_runs(args.paths))
    table = found.largest_batches() if args.largest_batch else found
    if args.into:
        print(*publish(table, args.into), sep="\n")
    elif args.format == "terminal":
        print_report(table)
    else:
        print(markdown(table) if args.format == "markdown" else comma_separated(table), end="")
    if args.figure:
        from llmexp.report.plots import draw_report

        draw_report(table, args.figure)
    return 0


def compare(words: Sequence[str]) -> int:
    """Print how two runs differ, and by how much."""
    parser = _parser("compare", "What differs between two runs, in what was asked and in what was measured.")
    parser.add_argument("a", type=Path, help="a run's folder")
    parser.add_argument("b", type=Path, help="another's")
    args = parser.parse_args(words)
    from llmexp.report.compare import compare as compare_runs
    from llmexp.report.terminal import print_comparison

    print_comparison(compare_runs(_one_run(args.a), _one_run(args.b)))
    return 0


def status(words: Sequence[str]) -> int:
    """Print the state of every run."""
    parser = _parser("status", "Where every run stands, also of runs that were killed.")
    _add_paths(parser)
    from llmexp.cli.status import print_status

    print_status(_runs(parser.parse_args(words).paths))
    return 0


def logs(words: Sequence[str]) -> int:
    """Print what a run printed."""
    parser = _parser("logs", "What a run's SLURM job, launcher and ranks printed, also while it runs.")
    parser.add_argument("run", type=Path, help="the run's folder")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the run has ended")
    args = parser.parse_args(words)
    from llmexp.cli.logs import print_logs

    print_logs(_one_run(args.run), args.follow)
    return 0


def cancel(words: Sequence[str]) -> int:
    """End the SLURM jobs of runs."""
    parser = _parser("cancel", "Ends the SLURM jobs, queued or running, of runs; the runs say killed then, and the same sweep does them again.")
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATHS", help="runs, sweeps or folders of them")
    paths = parser.parse_args(words).paths
    runs = _runs(paths)
    from llmexp.sweep.cluster import cancel as cancel_runs

    return 0 if cancel_runs(runs, paths) else 1


def sync(words: Sequence[str]) -> int:
    """Copy run folders to MLflow, pictures drawn that are missing; what is there already is left alone."""
    parser = _parser("sync", "Copy runs to MLflow: those that a tracker missed, or that another machine made. Safe to repeat.")
    _add_paths(parser)
    parser.add_argument(
        "--uri", type=_tracker, help="default: the one each run was planned with, else MLFLOW_TRACKING_URI, else SQLite in outputs/mlflow.db"
    )
    parser.add_argument("--yes", action="store_true", help="the trackers that the runs were planned with are yours")
    parser.add_argument("--experiment", help="MLflow's; default: the one each run was planned with")
    args = parser.parse_args(words)
    from llmexp.cli.copying import copy_runs, refused
    from llmexp.cli.pictures import draw_missing

    runs = _runs(args.paths)
    if not (args.uri or args.yes) and (why := refused(runs)):
        raise ConfigError(why)
    draw_missing(runs)
    return 0 if copy_runs(runs, {key: value for key, value in (("uri", args.uri), ("experiment", args.experiment)) if value}) else 1


def ui(words: Sequence[str]) -> int:
    """Serve MLflow's pages on this machine until Ctrl-C, with every run that has ended by now."""
    parser = _parser("ui", "MLflow's pages on 127.0.0.1, until Ctrl-C.")
    parser.add_argument("--port", type=_port, default=5000)
    parser.add_argument("--uri", type=_tracker, help="default: MLFLOW_TRACKING_URI, else SQLite in outputs/mlflow.db")
    parser.add_argument("--outputs", type=Path, default=Path(OUTPUTS), help=f"where sweep.outputs is; default {OUTPUTS}")
    args = parser.parse_args(words)
    elsewhere = args.outputs == Path(OUTPUTS) and (args.uri or os.environ.get("MLFLOW_TRACKING_URI"))
    if not args.outputs.is_dir() and not elsewhere:
        raise ConfigError(f"there is no folder {args.outputs}: --outputs names where sweep.outputs is, and python -m llmexp method=Naive makes a run")
    from llmexp.cli.copying import copy_missing
    from llmexp.cli.status import jobs_under_way
    from llmexp.record.folder import find_runs
    from llmexp.record.mlflow import serve_ui
    from llmexp.schema import TrackingConfig

    runs = find_runs(args.outputs)
    jobs_under_way(runs)
    copy_missing(runs)
    return serve_ui(TrackingConfig(name="mlflow", uri=args.uri), args.port, args.outputs)


def doctor(words: Sequence[str]) -> int:
    """Check this machine and say what to do; 1 where something fails."""
    parser = _parser(
        "doctor",
        "What on this machine would stop or disturb a measurement, and what to do about it; with a run's words, what that run needs. "
        "Starts nothing, imports no torch.",
    )
    add_overrides(parser)
    parser.add_argument("--outputs", type=Path, default=Path(OUTPUTS), help=f"where sweep.outputs will be; default {OUTPUTS}")
    args = parser.parse_intermixed_args(words)
    from llmexp.cli.doctor import examine, examine_for, print_findings

    if not args.overrides:
        return 0 if print_findings(examine(args.outputs)) else 1
    from llmexp.cli.run import jobs_of

    plans = [job.plan for job in jobs_of(args)]
    return 0 if print_findings(examine_for(plans, by_slurm="hydra/launcher=slurm" in args.overrides)) else 1


def engines(words: Sequence[str]) -> int:
    """Print what each engine can do."""
    parser = _parser("engines", "What each engine can do and why it cannot do the rest, as experiment=capabilities asks them. Starts nothing.")
    add_overrides(parser)
    parser.add_argument("--format", choices=("terminal", "markdown"), default="terminal")
    args = parser.parse_intermixed_args(words)
    from llmexp.cli.capabilities import markdown, matrix, print_matrix
    from llmexp.cli.run import answers_of

    args.overrides.insert(0, "+experiment=capabilities")
    found = matrix(answers_of(args), args.overrides)
    if args.format == "markdown":
        print(markdown(found), end="")
    else:
        print_matrix(found)
    return 0


def reproduce(words: Sequence[str]) -> int:
    """Measure an earlier run again and judge whether it says the same; 1 where it does not."""
    parser = _parser("reproduce", "Measures a run again from its folder, shows what differs in the environment, and gives the verdict.")
    parser.add_argument("run", type=Path, help="the run's folder")
    parser.add_argument("--yes", action="store_true", help="what its plan starts and reaches besides is yours, or known to you")
    args = parser.parse_args(words)
    from llmexp.cli.reproduce import reproduce as reproduce_run

    return reproduce_run(_one_run(args.run), trusted=args.yes)


_COMMANDS = (plan, report, compare, status, logs, cancel, sync, ui, doctor, engines, reproduce)
COMMANDS: Mapping[str, Callable[[Sequence[str]], int]] = dict(zip(COMMAND_NAMES, _COMMANDS, strict=True))


def carry_out(command: Callable[[Sequence[str]], int], words: Sequence[str]) -> int:
    """Do a command's work, which may be on a folder that somebody else has made; returns the exit code."""
    from llmexp.cli.clean import plainly

    try:
        with plainly(sys.stdout, sys.stderr):
            return command(words)
    except LlmexpError as error:
        raise type(error)(plain(str(error))) from error


def command_in(words: Sequence[str]) -> tuple[Callable[[Sequence[str]], int], list[str]] | None:
    """The command and its words: its name stands first, or first after overrides; None where the words are a run's."""
    for place, word in enumerate(words):
        if word in COMMANDS:
            return COMMANDS[word], [*words[:place], *words[place + 1 :]]
        if "=" not in word and word not in ("-m", "--multirun"):
            return None
    return None


def _parser(name: str, description: str) -> Parser:
    return Parser(f"llmexp {name}", description=description, allow_abbrev=False)


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise ArgumentTypeError(f"{text} is no port: a whole number from 1 to 65535")
    return int(text)


def _tracker(uri: str) -> str:
    """An address that MLflow can use; raises ConfigError."""
    from llmexp.record.tracking_uri import check_uri

    check_uri(uri, "--uri")
    return uri


def _add_paths(parser: Parser) -> None:
    described = f"runs, sweeps or folders of them; default {OUTPUTS}"
    parser.add_argument("paths", nargs="*", type=Path, default=[Path(OUTPUTS)], metavar="PATHS", help=described)


def _runs(paths: Sequence[Path]) -> list[RunFolder]:
    """All runs below the paths, each once; raises ConfigError where there is none."""
    from llmexp.record.folder import find_runs

    for path in paths:
        if not path.exists():
            raise ConfigError(f"there is no {path}: name a run's folder, a sweep's or one that holds them")
    found = {run.path.resolve(): run for path in paths for run in find_runs(path)}
    if not found:
        raise ConfigError(f"no runs in {', '.join(map(str, paths))}: python -m llmexp method=Naive makes one")
    return list(found.values())


def _one_run(path: Path) -> RunFolder:
    runs = _runs([path])
    if len(runs) > 1:
        raise ConfigError(f"{path} holds {len(runs)} runs: name one of them, such as {runs[0].path}")
    return runs[0]
