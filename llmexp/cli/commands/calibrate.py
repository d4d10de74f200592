"""The command llmexp calibrate measures three short runs that correct predictions, or shows how far off they were."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from llmexp.cli.arguments import OUTPUTS, Parser, add_overrides, command_parser, runs_in
from llmexp.cli.calibration_table import calibration_lines, error_lines
from llmexp.cli.face import planned
from llmexp.cli.plan_table import plan_table
from llmexp.cli.run import main as measure
from llmexp.errors import ConfigError
from llmexp.record.calibration_file import read_calibrations
from llmexp.record.folder import find_runs
from llmexp.record.plan import RunPlan
from llmexp.registry import get_task

_EXPERIMENT = "experiment=calibration"
# What binds the step of each method of the experiment, and the devices that it needs.
_RUNS = {"F": ("computing", 1), "F+Z3": ("links", 2), "F+Z2+O": ("the host", 1)}
# A model of which three runs are short, and whose matrices fill a GPU.
_MODEL_ON_GPUS = "model=1b"
# Keys that the microbenchmarks share with the runs.
_OF_SWEEPS = ("sweep.outputs=", "tracking", "rerun=", "budget")
_DESCRIPTION = (
    "Measures three short runs: a step bound by computing, one by links (on two devices or more), and one by the host. "
    "They correct the speeds that plans predict for this machine, as all other runs do too. The runs are kept in the "
    "sweep calibration."
)


def parser() -> Parser:
    """Build the parser of the command's words."""
    parser = command_parser("calibrate", _DESCRIPTION)
    add_overrides(parser)
    parser.add_argument(
        "--show",
        action="store_true",
        help=f"list measured over predicted speed by date, and any drift; the words are folders, default {OUTPUTS}",
    )
    return parser


def main(args: Namespace) -> int:
    """Plan the runs, measure them, and print what they correct; return the exit code."""
    if args.show:
        print(*error_lines(runs_in([Path(word) for word in args.overrides] or [Path(OUTPUTS)])), sep="\n")
        return 0
    _check(args.overrides)
    words = _words(args)
    found = planned(_arguments(args, words))
    if _measure_first(args, found.plans[0]):
        found = planned(_arguments(args, words))
    print(*_bindings(found.plans), plan_table(found.costs), "", sep="\n", flush=True)
    code = measure([*words, *_own_files(args)])
    print()
    config = found.plans[0].config
    outputs = Path(config.sweep.outputs)
    # Runs of before count too, such as those of jobs that nobody waited for.
    get_task(config.task.name).learn(outputs, find_runs(outputs))
    print(*calibration_lines(read_calibrations(outputs), {plan.id for plan in found.plans}, outputs), sep="\n")
    return code


def _check(overrides: Sequence[str]) -> None:
    for key in ("method", "experiment", "sweep.name", "sweep.control", "task"):
        if any(word.lstrip("+").startswith(f"{key}=") for word in overrides):
            raise ConfigError(f"{key} does not go with llmexp calibrate, which chooses its runs: leave it out")


def _measure_first(args: Namespace, plan: RunPlan) -> bool:
    """Measure what predictions of the plan go by, where that is missing; tell whether anything was."""
    first = get_task(plan.config.task.name).measured_first(plan)
    if first:
        shared = [word for word in args.overrides if word.startswith(_OF_SWEEPS)]
        print(f"first what predictions go by here: llmexp {' '.join(first)}", flush=True)
        measure([*first, "sweep.name=calibration", *shared, *_own_files(args)])
        print()
    return bool(first)


def _own_files(args: Namespace) -> list[str]:
    return ["--config-dir", args.config_dir] if args.config_dir else []


def _words(args: Namespace) -> list[str]:
    """Return the words of the runs: on GPUs a larger model, and on one device no run that is bound by links."""
    words = [_EXPERIMENT, *args.overrides]
    plan = _first(args, words)
    if plan.config.hardware.device == "cuda" and not any(word.startswith("model") for word in args.overrides):
        words.append(_MODEL_ON_GPUS)
        plan = _first(args, words)
    kept = [method for method, (_, devices) in _RUNS.items() if devices <= plan.devices]
    return words if len(kept) == len(_RUNS) else [*words, f"method={','.join(kept)}"]


def _first(args: Namespace, words: Sequence[str]) -> RunPlan:
    return planned(_arguments(args, [*words, "method=F"])).plans[0]


def _arguments(args: Namespace, words: Sequence[str]) -> Namespace:
    return Namespace(overrides=list(words), config_dir=args.config_dir)


def _bindings(plans: Sequence[RunPlan]) -> list[str]:
    """Say what binds the step of each run."""
    methods = [plan.name_fields["method"] for plan in plans]
    return [*(f"{method}: bound by {_RUNS[method][0]}" for method in methods), ""]
