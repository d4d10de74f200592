"""The command llmexp ab measures two commits, environments or configurations in turns, and judges each row."""

from __future__ import annotations

import re
import tempfile
from argparse import Namespace
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from llmexp.analysis.many_rows import MARGIN
from llmexp.cli.arguments import Parser, add_overrides, command_parser, share
from llmexp.cli.jobs import Job
from llmexp.cli.words import jobs_of, own_folder, search_path
from llmexp.errors import ConfigError
from llmexp.launch.display import enduring
from llmexp.launch.interrupt import signals_interrupt
from llmexp.method import NAIVE
from llmexp.record.plan import RunPlan
from llmexp.report.baseline import Measured, measured
from llmexp.report.blocked_sets import MeasuredBlock, compare_blocks
from llmexp.report.blocked_terminal import print_blocked
from llmexp.report.row import read_row
from llmexp.report.sets import spec_of
from llmexp.sweep.ab.measuring import MeasuredRow, TurnSession, held, measure_in_blocks
from llmexp.sweep.ab.side import Side, opened
from llmexp.sweep.ab.turns import CONTROL, A, B, Measures, SideTurn, TurnBlock
from llmexp.sweep.run import check_store

# Three processes of two speeds agree too often: docs/results/verdicts.md has the rates from four on.
REPEATS, LEAST_REPEATS = 6, 4
# A sweep that nobody named.
_UNNAMED = "main"
_DESCRIPTION = (
    "Tells which runs are faster or slower with B than with A. Measures both in turns, one repeat at a time. A side "
    "is a commit of the repository, a checkout, an environment or its python, or overrides such as engine=torch. "
    "The exit code is 1 where a row is slower or is lost, 2 where a side cannot run, and 0 otherwise."
)


def parser() -> Parser:
    """Build the parser of the command's words."""
    parser = command_parser("ab", _DESCRIPTION)
    parser.add_argument("sides", nargs=2, metavar="SIDE", help="A and B; several overrides in quotes")
    add_overrides(parser)
    parser.add_argument("--repeats", type=_repeats, default=REPEATS, help=f"repeats of each side; default {REPEATS}")
    parser.add_argument(
        "--margin",
        type=share,
        default=MARGIN,
        help=f"the smallest difference that matters, such as 2%%; default {MARGIN:g}, more if A differs from itself",
    )
    parser.add_argument("--metric", help="the metric to compare instead of the task's rate, such as peak_rss_bytes")
    parser.add_argument("--strict", action="store_true", help="also exit 1 if a row has no answer")
    return parser


def main(args: Namespace) -> int:
    """Measure both sides in turns and print the comparison; return the exit code."""
    _check(args)
    first, second = args.sides
    with (
        signals_interrupt(),  # so that a commit's checkout is removed
        tempfile.TemporaryDirectory(prefix="llmexp-ab-") as name,
        opened(first, Path(name) / "a") as a,
        opened(second, Path(name) / "b") as b,
        enduring(),
    ):
        session = _session(args, a, b)
        with held(session):
            done = measure_in_blocks(session, args.repeats)
    blocks, control = _measured(session, done)
    found = compare_blocks(blocks, control, args.margin, args.metric)
    print_blocked(found, {A: first, B: second}, session.rows[session.control - 1].name)
    print(f"runs: {session.root}; llmexp report {session.root} shows them")
    return int(found.sets.failed or (args.strict and not found.sets.is_complete))


def _repeats(text: str) -> int:
    if not text.isdecimal() or int(text) < LEAST_REPEATS:
        raise ConfigError(f"--repeats is '{text}': write a whole number of at least {LEAST_REPEATS}")
    return int(text)


def _check(args: Namespace) -> None:
    if not args.overrides:
        raise ConfigError("no run given: llmexp ab A B -- method=Naive model=tiny measure=quick")
    for word, why in (
        ("hydra/launcher", "both sides are measured by this command, where it runs"),
        ("sweep.control", "a control is always measured"),
    ):
        if any(one.lstrip("+").startswith(word) for one in args.overrides):
            raise ConfigError(f"{word} does not go with llmexp ab: {why}; leave it out")


def _session(args: Namespace, a: Side, b: Side) -> TurnSession:
    """Plan both sides, let each check the words, and say what will be measured where."""
    of_a = _planned(args, a)
    planned = of_a, of_a if a.words == b.words else _planned(args, b)
    if len(planned[0]) != len(planned[1]):
        counts = " and ".join(str(len(jobs)) for jobs in planned)
        raise ConfigError(
            f"the sides make {counts} runs from these words: overrides of a side must apply to all its runs"
        )
    plans = [job.plan for job in planned[0]]
    if args.metric:
        spec_of(args.metric, {plan.config.task.name for plan in plans})
    check_store(plans[0])
    words = [*search_path(own_folder(args)), *args.overrides]
    for side in (a, b):
        side.check(words)
    rows = [
        MeasuredRow(_name(one.plan), _words_of_sides(one.plan, other.plan)) for one, other in zip(*planned, strict=True)
    ]
    identity = {"a": a.identity, "b": b.identity, "words": [row.words for row in rows]}
    anew, root = plans[0].config.rerun == "all", _root(args, plans[0], identity)
    session = TurnSession({A: a, B: b, CONTROL: a}, rows, _control(plans), root, anew, identity)
    turns = args.repeats * (2 * len(rows) + 1)
    print(f"{turns} turns of {len(rows)} row{'s' * (len(rows) > 1)} into {session.root}", flush=True)
    return session


def _planned(args: Namespace, side: Side) -> list[Job]:
    return jobs_of(Namespace(overrides=[*args.overrides, *side.words], config_dir=args.config_dir))


def _name(plan: RunPlan) -> str:
    return " ".join(filter(None, [list(plan.name_fields.values())[-1], plan.label]))


def _words_of_sides(a: RunPlan, b: RunPlan) -> Mapping[Measures, Sequence[str]]:
    return {A: _words(a), CONTROL: _words(a), B: _words(b)}


def _words(plan: RunPlan) -> list[str]:
    """Return the words of one run, without what would only cost time between two turns."""
    # Whether turns of before count is no part of what is measured, which names the folder.
    typed = [word for word in plan.overrides if not word.startswith("rerun=")]
    added = [] if any(word.startswith("tracking") for word in typed) else ["tracking=none"]
    if getattr(plan.config.measure, "profile", False):
        added.append("measure.profile=false")
    return [*typed, *added]


def _control(plans: Sequence[RunPlan]) -> int:
    """Return the row, counted from 1, that a measures against itself: Naive if it is there."""
    return next((number for number, plan in enumerate(plans, 1) if plan.name_fields.get("method") == NAIVE), 1)


def _root(args: Namespace, plan: RunPlan, identity: Mapping[str, object]) -> Path:
    """Return the folder of all turns: that of sweep.name, or one that the sides and the words give."""
    sweep = plan.config.sweep
    if sweep.name != _UNNAMED and any(word.startswith("sweep.name=") for word in args.overrides):
        return Path(sweep.outputs).absolute() / sweep.name
    short = [re.sub(r"\W+", "-", side.strip("./"))[-20:].strip("-") or "here" for side in args.sides]
    return Path(sweep.outputs).absolute() / f"ab_{'_'.join(short)}_{sha256(repr(identity).encode()).hexdigest()[:8]}"


def _measured(session: TurnSession, done: Sequence[TurnBlock]) -> tuple[list[MeasuredBlock], list[MeasuredBlock]]:
    """Read the blocks (a, b) of all rows, and those of the control (a, a once more)."""

    def read(block: TurnBlock, measures: Measures) -> Measured:
        run = session.run_of(SideTurn(block.round, block.row, measures))
        if run is None:
            raise ConfigError(f"{session.root} has lost the runs of {session.rows[block.row - 1].name}: measure again")
        return measured(read_row(run))

    return (
        [(read(block, A), read(block, B)) for block in done],
        [(read(block, A), read(block, CONTROL)) for block in done if block.row == session.control],
    )
