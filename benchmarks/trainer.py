"""`python -m benchmarks.trainer [--pairs N] [words of a run]` compares llmexp's run with a plain Trainer loop.

The Trainer is Hugging Face's. Fresh processes run in turn. Both train the same seeded model on tokens of one kind, in
the same dtypes, with the same optimizer, for the same steps.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.figure import Figure
from benchmarks.interval import Interval, interval, paired_ratio
from llmexp.cli.arguments import Parser, add_overrides
from llmexp.cli.words import jobs_of
from llmexp.errors import ConfigError, LlmexpError
from llmexp.launch.prepare import environment
from llmexp.launch.run import run_one
from llmexp.method import Method
from llmexp.record.folder import RunFolder
from llmexp.record.result import to_json
from llmexp.training.plan.training_plan import TrainingPlan

# One device, one dtype for parameters, gradients and moments: the Trainer does the same with a model in bf16.
WORDS = (
    "method=F",
    "data=synthetic",
    "precision=bf16_pure",
    "parallelism.dp=1",
    "measure.profile=false",
    "tracking=none",
)
# One thread, because several would wait for each other whenever another program uses a core.
TINY = (
    "model=tiny",
    "hardware=cpu",
    "precision=fp32",
    "data.seq_len=256",
    "measure=quick",
    "measure.steps=100",
    "measure.threads_per_rank=1",
)
FLOOR = 0.98
# With an adapter llmexp must not be slower at all.
ADAPTED_FLOOR = 1.0
COMPARED = {"F", "R", "C", "L", "QL"}
ROOT = Path(__file__).parents[1]


def beside_trainer(folder: Path, pairs: int) -> Iterator[Figure]:
    """Yield the tiny model's tokens/s over the Trainer's, with all parameters trained and with LoRA."""
    for words in (TINY, (*TINY, "task=finetune", "method=L+F")):
        plan, _ = comparable(words)
        yield ratio(plan, compared(plan, folder / f"trainer.{plan.id}", pairs))


def ratio(plan: TrainingPlan, rates: dict[str, list[float]]) -> Figure:
    """Return the ratio of tokens/s to the Trainer's over all pairs; a cause that slows both sides of a pair cancels."""
    adapted = method_of(plan).techniques.adapter is not None
    name, floor = (", with LoRA", ADAPTED_FLOOR) if adapted else ("", FLOOR)
    return Figure(
        f"tokens/s over a plain Trainer's{name}",
        "x",
        paired_ratio(rates["llmexp"], rates["Trainer"]),
        len(rates["llmexp"]),
        floor=floor,
    )


def method_of(plan: TrainingPlan) -> Method:
    """Return the plan's method, parsed for its task."""
    return Method.parse(plan.method, plan.config.task.name)


def compared(plan: TrainingPlan, folder: Path, pairs: int) -> dict[str, list[float]]:
    """Return the tokens/s of each run of each side; the side that runs first changes from pair to pair."""
    rates: dict[str, list[float]] = {"llmexp": [], "Trainer": []}
    for pair in range(pairs):
        for name in list(rates)[:: 1 if pair % 2 else -1]:
            rates[name].append((ours if name == "llmexp" else trainers)(plan, folder / f"{name}.{pair}"))
    return rates


def ours(plan: TrainingPlan, folder: Path) -> float:
    """Run `python -m llmexp`'s run and return its tokens/s; raise ConfigError where it ends without a measurement."""
    result = run_one(plan, RunFolder(folder))
    assert result is not None  # nobody else holds a new folder
    rate = result.metrics.get("tokens_per_s")
    if rate is None:
        raise ConfigError(f"llmexp's run ended {result.status}: {result.reason}")
    return rate.mean


def trainers(plan: TrainingPlan, folder: Path) -> float:
    """Run the Trainer and return its tokens/s; raise ConfigError with the end of its log where it fails."""
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text(to_json(plan))
    command = [sys.executable, "-m", "benchmarks.trainer_worker", str(folder / "plan.json"), str(folder / "rate.json")]
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        command, env=environment(plan, {"PYTHONPATH": path}), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ConfigError(f"the Trainer failed: {done.stderr.strip().splitlines()[-1]}")
    return float(json.loads((folder / "rate.json").read_text()))


def comparable(words: Sequence[str]) -> tuple[TrainingPlan, int]:
    """Return the plan that the words give, and the number of pairs.

    Raises ConfigError for a plan without an equal in a plain Trainer loop. Atom C is compared with a Trainer without
    it: a plain loop does not compile, and the gain from C is a question too.
    """
    parser = Parser("python -m benchmarks.trainer", allow_abbrev=False)
    add_overrides(parser)
    parser.add_argument("--pairs", type=int, default=3, help="runs of each; 2 at least, for an interval")
    args = parser.parse_intermixed_args(list(words))
    given = {word.partition("=")[0] for word in args.overrides}
    args.overrides += [word for word in WORDS if word.partition("=")[0] not in given]
    (job,) = jobs_of(args)
    plan = job.plan
    assert isinstance(plan, TrainingPlan)
    codes = method_of(plan).codes
    precision = plan.config.precision
    if (
        args.pairs < 2
        or plan.dims.world_size > 1
        or not set(codes) <= COMPARED
        or precision.master != precision.parameters
    ):
        asked = f"--pairs {args.pairs}, {plan.dims.world_size} ranks, method={plan.method}, precision={precision.name}"
        raise ConfigError(
            f"{asked}: compared are 2 pairs or more of runs on one device, of F, R, C, L and QL, in bf16_pure or fp32"
        )
    return plan, args.pairs


def lines(plan: TrainingPlan, rates: dict[str, list[float]]) -> list[str]:
    """Return the lines to print: each side's tokens/s and the ratio, with 95 % intervals, and the slower side."""

    def line(name: str, found: Interval, form: str) -> str:
        return f"{name:<18} {found.mean:{form}}  ({found.low:{form}} to {found.high:{form}})"

    work = (
        f"{plan.config.model.name}, {plan.method}, {plan.config.precision.name}, "
        f"batch {plan.batch.micro} x {plan.config.data.seq_len}"
    )
    both = [line(f"{name} tokens/s", interval(found), ",.1f") for name, found in rates.items()]
    figure = ratio(plan, rates)
    kept = f"{figure.bounds} {figure.verdict}; {slower(figure.measured)}"
    return [f"{work}, {figure.n} pairs", *both, line("llmexp / Trainer", figure.measured, ".3f"), kept]


def slower(measured: Interval) -> str:
    """Say which side of the ratio is slower by more than chance."""
    if measured.low <= 1 <= measured.high:
        return "neither is slower by more than chance"
    return "llmexp is slower" if measured.high < 1 else "the Trainer is slower"


def main() -> int:
    """Measure in a scratch folder, print, and return the exit code.

    It is 1 where llmexp is too slow, 2 where the words cannot be compared or a side fails.
    """
    try:
        plan, pairs = comparable(sys.argv[1:])
        with tempfile.TemporaryDirectory(prefix="llmexp-bench-") as folder:
            rates = compared(plan, Path(folder), pairs)
    except LlmexpError as error:
        print(f"llmexp: {error}", file=sys.stderr)
        return 2
    print(*lines(plan, rates), sep="\n")
    return 1 if ratio(plan, rates).broken else 0


if __name__ == "__main__":
    sys.exit(main())
