"""Measures one GPU in three parts of at most nine minutes each, without a network: what tells most comes first.

    make gpu-parts         # in .venv
    make gpu-wheels        # where there is a network, for a machine with torch, transformers, peft, triton, and none:
    python3 -m benchmarks.gpu_parts 1 --wheels .wheels        # there; then 2 and 3

It is plain Python, because on such a machine it installs what it runs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PART_S = 540
# Traces are far larger than all other records, and stay where they are.
TRACES = "trace"
INSTALLED = Path(tempfile.gettempdir()) / "llmexp-gpu-parts"
TRAINED = (
    "model=7b data=synthetic data.seq_len=4096 precision=bf16_pure parallelism.dp=1 "
    "measure=quick measure.profile=false measure.warmup_steps=4 measure.steps=10"
)
FUSED_OR_NOT = "+engine.options.transformer.bias_activation_fusion=true,false"
TESTS = (
    "tests/launchers/attention/test_block.py",
    "tests/measure/test_memory.py",
    "tests/launchers/every_engine/test_cuda.py",
)


@dataclass(frozen=True)
class Step:
    """A sweep of its own name, which is ended after so many seconds; `words` are those of llmexp."""

    name: str
    limit_s: int
    words: str


def steps(part: int, sequences: int) -> list[Step]:
    """Return a part's sweeps; `sequences` of 4096 positions are one pass of 7B: 1 with 80 GB, 3 with 140."""
    few = sequences == 1
    if part == 1:
        return [
            Step("first", 80, f"engine=torch method=F {TRAINED}"),
            Step("limits", 130, "task=micro model=7b micro.ranks=1 measure.point_limit_s=1"),
        ]
    if part == 2:
        torch, short = f"engine=torch {TRAINED}", "measure.warmup_steps=2 measure.steps=5"
        found = [Step("mfu", 210, f"{torch} batch.micro={sequences} method=F,F+C kernels.flash=auto,fa2")]
        if few:
            found += [
                Step("accumulation", 95, f"{torch} method=F+C batch.accumulation=8 {short}"),
                Step("adamw8bit", 85, f"{torch} method=F+C batch.micro=2 optimizer=adamw8bit"),
            ]
        return [
            *found,
            Step("liger", 60, f"{torch} batch.micro={sequences} method=F kernels.liger=true"),
            Step("recomputed", 90, f"{torch} method=F+R+C batch.micro=8 {short}"),
        ]
    tuned = "task=finetune engine=torch model=7b data=synthetic data.seq_len=1024 parallelism.dp=1 precision=bf16_pure"
    return [
        Step("modules", 150, "+experiment=gpu_modules method=F,F+C data.seq_len=2048 batch.micro=1"),
        Step("finetune", 100, f"{tuned} measure=quick measure.profile=false batch.micro=4 method=L+F,QL+F"),
        Step("megatron", 110, f"engine=megatron method=F {TRAINED} data.seq_len=2048 {FUSED_OR_NOT}"),
        Step("deepspeed", 65, f"engine=deepspeed method=F {TRAINED} data.seq_len=2048"),
        Step("serve", 110, "task=serve engine=transformers model=1b serve.rate=[8,max] serve.requests=64"),
    ]


def main(words: Sequence[str] | None = None) -> int:
    """Measure the parts that are named; return 1 where any step failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_parts", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("parts", nargs="*", type=int, choices=(1, 2, 3), default=[1, 2, 3])
    parser.add_argument("--wheels", type=Path, help="a folder of wheels that are installed first, of a bare machine")
    parser.add_argument("--into", type=Path, default=Path("outputs"), help="where the records go; outputs without it")
    args = parser.parse_args(words)
    into, env = args.into.absolute(), _installed(args.wheels) if args.wheels else dict(os.environ)
    into.mkdir(parents=True, exist_ok=True)
    failed = 0
    for part in args.parts:
        for name, command, limit_s in _commands(part, into):
            failed |= _run(name, command, limit_s, env | {"PYTHONSAFEPATH": "1"})
        _pack(into, part)
    return failed


def _commands(part: int, into: Path) -> Iterator[tuple[str, list[str], int]]:
    for step in steps(part, _sequences()):
        words = [f"sweep.name=part{part}_{step.name}", f"sweep.outputs={into}", "tracking=none", *step.words.split()]
        yield step.name, [sys.executable, "-m", "llmexp", *words], step.limit_s
    if part == 1:
        pytest = [sys.executable, "-m", "pytest", "-q", "--maxfail=8", "-W", "ignore", "-p", "no:cacheprovider"]
        yield "tests marked gpu", [*pytest, "-m", "gpu", *TESTS], 320


def _sequences() -> int:
    """Return how many sequences a pass of 7B has on this machine's GPU; 1 where its memory is not known."""
    asked = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()
    except (OSError, subprocess.CalledProcessError):
        return 1
    return 3 if said and said[0].isdigit() and int(said[0]) > 120_000 else 1


def _installed(wheels: Path) -> dict[str, str]:
    """Install all wheels into a folder that Python searches first, and return the variables that say so."""
    if not INSTALLED.exists():
        options = ["--quiet", "--no-index", "--no-deps", "--no-compile", "--target", str(INSTALLED)]
        subprocess.run([sys.executable, "-m", "pip", "install", *options, *map(str, wheels.glob("*.whl"))], check=True)
    return {**os.environ, "PYTHONPATH": str(INSTALLED)}


def _run(name: str, command: Sequence[str], limit_s: int, env: Mapping[str, str]) -> int:
    """Run a command for so long at most, with its output; return 1 where it failed or took longer."""
    begun_s = time.monotonic()
    with subprocess.Popen(command, env=env) as process:
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            process.terminate()
            code = process.wait()  # llmexp ends its ranks and writes its result first
    print(f"== {name}: exit code {code} after {time.monotonic() - begun_s:.0f} s of {limit_s}", flush=True)
    return int(code != 0)


def _pack(into: Path, part: int) -> None:
    """Pack what a part recorded, without traces, into one file that is small enough to be taken along."""
    with tarfile.open(into / f"part{part}.tar.gz", "w:gz") as packed:
        for folder in sorted(into.glob(f"part{part}_*")):
            packed.add(folder, folder.name, filter=lambda member: None if TRACES in Path(member.name).parts else member)


if __name__ == "__main__":
    sys.exit(main())
