"""The command llmexp compare shows how two runs differ, or judges two sets of runs row by row."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from glob import glob
from pathlib import Path

from llmexp.analysis.many_rows import MARGIN
from llmexp.answers.compared import runs_compared, sets_compared
from llmexp.answers.versioned import line
from llmexp.cli.arguments import Parser, command_parser, runs_in, share
from llmexp.errors import ConfigError
from llmexp.record.folder import RunFolder
from llmexp.report.baseline import Measured, load, measured, save
from llmexp.report.compare import compare
from llmexp.report.row import read_row
from llmexp.report.sets import compare_sets
from llmexp.report.sets_terminal import print_sets
from llmexp.report.terminal import print_comparison

_DESCRIPTION = (
    "Shows what differs between two runs, or which rows of two sets of runs are faster or slower. For sets the exit "
    "code is "
    "1 where a row is slower, is no longer measured, or did another training, and 0 otherwise; 2 where nothing can be "
    "compared."
)
_OTHER_DAY = (
    "a baseline was measured at another time: if the machine was faster or slower then, that shows as a difference "
    "too; llmexp ab measures both sides in turns"
)


def parser() -> Parser:
    """Build the parser of the command's words."""
    parser = command_parser("compare", _DESCRIPTION)
    parser.add_argument(
        "paths", nargs="+", metavar="PATHS", help="two runs or sets: folders of runs, or patterns in quotes"
    )
    parser.add_argument("--to", nargs="+", metavar="PATHS", help="the second set; all other paths are the first")
    parser.add_argument("--baseline", type=Path, metavar="FILE", help="the first set; all paths are the second")
    parser.add_argument("--save-baseline", type=Path, metavar="FILE", help="keep the runs as a first set for later")
    parser.add_argument(
        "--metric", help="the metric to compare instead of the task's rate, such as peak_allocated_bytes"
    )
    parser.add_argument(
        "--margin", type=share, help=f"the smallest difference that matters, such as 2%%; default {MARGIN:g}"
    )
    parser.add_argument("--pool", action="store_true", help="pool the repeats of runs in a set that measure the same")
    parser.add_argument("--json", action="store_true", help="print the comparison as one line of JSON")
    parser.add_argument("--strict", action="store_true", help="also exit 1 if a row has no answer or no partner")
    return parser


def main(args: Namespace) -> int:
    """Print the comparison, or write the baseline; return the exit code."""
    if args.save_baseline:
        return _save(args)
    first, second = _sides(args)
    if first is not None and not args.baseline and len(first) == len(second) == 1 and not _asks_for_sets(args):
        beside = compare(first[0], second[0])
        if args.json:
            print(line(runs_compared(beside)))
        else:
            print_comparison(beside)
        return 0
    a = load(args.baseline) if args.baseline else _measured(first or [])
    margin = MARGIN if args.margin is None else args.margin
    found = compare_sets(a, _measured(second), args.metric, margin, pooled=args.pool)
    if args.json:
        print(line(sets_compared(found)))
    else:
        print_sets(found)
        if args.baseline:
            print(_OTHER_DAY)
    return int(found.failed or (args.strict and not found.is_complete))


def _save(args: Namespace) -> int:
    if args.baseline or args.to or args.json or _asks_for_sets(args):
        raise ConfigError("--save-baseline takes the paths of one set and no other option")
    rows = [row for row in _measured(_runs(args.paths)) if row.is_measured]
    if not rows:
        raise ConfigError(f"no run in {', '.join(args.paths)} was measured to its end: a baseline needs one")
    save(args.save_baseline, rows)
    print(f"{args.save_baseline}: {len(rows)} rows; llmexp compare <runs> --baseline {args.save_baseline} compares")
    return 0


def _sides(args: Namespace) -> tuple[list[RunFolder] | None, list[RunFolder]]:
    """Return the runs of both sets, None for those of a baseline."""
    if args.baseline and args.to:
        raise ConfigError("--baseline is the first set and the paths are the second: leave --to out")
    if args.baseline:
        return None, _runs(args.paths)
    if args.to:
        return _runs(args.paths), _runs(args.to)
    if len(args.paths) != 2:
        raise ConfigError(
            f"{len(args.paths)} path{'s' * (len(args.paths) > 1)} without --to: llmexp compare A B takes two runs or "
            "sets, A A --to B B any number, and B --baseline FILE one set"
        )
    return _runs(args.paths[:1]), _runs(args.paths[1:])


def _asks_for_sets(args: Namespace) -> bool:
    return bool(args.metric or args.margin is not None or args.strict or args.pool)


def _runs(names: Sequence[str]) -> list[RunFolder]:
    """Find the runs of folders and patterns; raises ConfigError where there is none."""
    return runs_in([Path(path) for name in names for path in (sorted(glob(name)) or [name])])


def _measured(runs: Sequence[RunFolder]) -> list[Measured]:
    return [measured(read_row(run)) for run in runs]
