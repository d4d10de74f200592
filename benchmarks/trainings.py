"""`python -m benchmarks.trainings` trains the tiny model in many layouts, and broken, and keeps what each run did.

`python -m benchmarks trust` judges pairs of these runs: equal trainings that are called different, and broken ones
that are not. The file has losses, gradients, digests and dtypes as runs record them, and no speeds.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import Field

from benchmarks.faults.sitecustomize import FAULTS
from llmexp.record.folder import find_runs
from llmexp.record.samples import Record
from llmexp.report.row import read_row
from llmexp.training.trained_run import TrainedRun

HERE = Path(__file__).parent
KEPT = HERE / "trainings.jsonl"
# The losses of random tokens hardly change; those of a text that is learned fast amplify every difference.
TASKS = {
    "random": ("data=synthetic",),
    "text": ("data=text", "optimizer.lr=1e-3"),
}
PRECISIONS = ("fp32", "bf16_mixed", "bf16_pure")
PROTOCOL = (
    "model=tiny",
    "hardware=cpu",
    "measure=smoke",
    "measure.warmup_steps=10",
    "measure.steps=1",
    "measure.profile=false",
    "measure.threads_per_rank=1",
    "data.seq_len=96",
    "tracking=none",
)
ONE = "parallelism.dp=1 batch.micro=8"
TWO = "parallelism.dp=2 batch.micro=4"
LAYOUTS: dict[str, tuple[str, ...]] = {
    "torch": (
        ONE,
        f"{ONE} method=F",
        f"{ONE} method=R",
        f"{ONE} method=C",
        f"{ONE} measure.threads_per_rank=2",
        "parallelism.dp=1 batch.micro=2 batch.accumulation=4",
        TWO,
        f"{TWO} method=Z1",
        f"{TWO} method=Z2",
        f"{TWO} method=F+R+Z3",
        f"{TWO} method=Z3+O",
        "parallelism.dp=1 parallelism.pp=2 batch.micro=2 batch.accumulation=4",
    ),
    "deepspeed": (
        ONE,
        "parallelism.dp=1 batch.micro=4 batch.accumulation=2",
        TWO,
        f"{TWO} method=Z1",
        f"{TWO} method=F+Z2",
        f"{TWO} method=R+Z3",
        f"{TWO} method=Z2+O",
        "parallelism.dp=1 parallelism.cp=2 batch.micro=8",
    ),
    "megatron": (
        ONE,
        f"{ONE} method=F",
        TWO,
        f"{TWO} method=Z1",
        "parallelism.dp=1 parallelism.tp=2 batch.micro=8",
        "parallelism.dp=1 parallelism.pp=2 batch.micro=2 batch.accumulation=4",
        "parallelism.dp=1 parallelism.cp=2 batch.micro=8",
    ),
}
ONLY_IN_FP32 = "products in bf16"
BROKEN = "parallelism.dp=1 batch.micro=4 batch.accumulation=2"
# Other instructions of the same processor sum in another order, as another processor or library does.
KERNELS = {
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "sse": {"ATEN_CPU_CAPABILITY": "default"},
}


class Training(Record):
    """One run: where, what was broken in it, and what it did."""

    task: str
    precision: str
    layout: str = Field(description="engine and words, or the libraries and kernels that were others")
    fault: str = ""
    did: TrainedRun


def read_trainings(path: Path = KEPT) -> list[Training]:
    """Read the runs that were kept, one a line; none where there is no file."""
    return [Training.model_validate_json(line) for line in path.open(encoding="utf-8")] if path.exists() else []


def commands(task: str, precision: str, older: str | None) -> Iterator[tuple[str, str, list[str], dict[str, str], str]]:
    """Yield the layout, the fault, the words, the variables and the interpreter of each run."""
    said = [*PROTOCOL, *TASKS[task], f"precision={precision}"]
    for engine, layouts in LAYOUTS.items():
        for words in layouts:
            yield f"{engine} {words}", "", [*said, f"engine={engine}", *words.split()], {}, sys.executable
    for name, variables in KERNELS.items():
        yield f"torch {name}", "", [*said, "engine=torch", *ONE.split()], variables, sys.executable
    for engine in ("torch", "deepspeed") * bool(older):
        yield f"{engine} older libraries", "", [*said, f"engine={engine}", *ONE.split()], {}, older or ""
    for fault in FAULTS if precision == "fp32" else FAULTS.keys() - {ONLY_IN_FP32}:
        variables = {"LLMEXP_FAULT": fault, "PYTHONPATH": str(HERE / "faults")}
        yield "torch", fault, [*said, "engine=torch", *BROKEN.split()], variables, sys.executable


def trained(words: Sequence[str], variables: dict[str, str], python: str) -> TrainedRun | None:
    """Measure one run in a folder of its own, and return what it did; None where it was skipped or has failed."""
    with tempfile.TemporaryDirectory(prefix="llmexp-trainings-") as folder:
        command = [python, "-m", "llmexp", *words]
        subprocess.run(command, cwd=folder, env=os.environ | variables, check=False, stdout=subprocess.DEVNULL)
        rows = [read_row(run) for run in find_runs(Path(folder) / "outputs")]
        did = rows[0].trained if rows else None
        return did if isinstance(did, TrainedRun) else None


def _keep(run: Training, path: Path) -> None:
    """Add a run; most of what it was asked for is known from the rest."""
    requested = {"optimizer.name": run.did.requested["optimizer.name"]}
    line = run.model_copy(update={"did": run.did.model_copy(update={"requested": requested})}).model_dump_json()
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def main() -> int:
    """Measure what the file does not hold yet, and write it after each run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.trainings", description=__doc__)
    parser.add_argument("--older", help="an interpreter with older libraries, such as .venv-older/bin/python")
    parser.add_argument("--out", type=Path, default=KEPT)
    args = parser.parse_args()
    known = {(run.task, run.precision, run.layout, run.fault) for run in read_trainings(args.out)}
    for task in TASKS:
        for precision in PRECISIONS:
            for layout, fault, words, variables, python in commands(task, precision, args.older):
                if (task, precision, layout, fault) in known:
                    continue
                did = trained(words, variables, python)
                print(f"{task} {precision} {layout} {fault}: {'kept' if did else 'not measured'}", flush=True)
                if did:
                    _keep(Training(task=task, precision=precision, layout=layout, fault=fault, did=did), args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
