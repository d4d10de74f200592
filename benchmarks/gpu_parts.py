"""Measures one GPU in five parts of at most six minutes each, without a network: what tells most comes first.

    make gpu-parts         # in .venv
    make gpu-wheels        # where there is a network, for a machine with torch, transformers, peft, triton, and none:
    python3 -m benchmarks.gpu_parts 1 --wheels .wheels        # there; then 2, 3, 4 and 5

It is plain Python, because on such a machine it installs what it runs. Part 1 begins with all that is right or wrong
and has no speed, at once; after that the card belongs to one run at a time.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

PARTS = (1, 2, 3, 4, 5)
PART_S = 360
# Traces are far larger than all other records, and stay where they are.
TRACES = "trace"
INSTALLED = Path(tempfile.gettempdir()) / "llmexp-gpu-parts"
TRAINED = (
    "model=7b data=synthetic data.seq_len=4096 precision=bf16_pure parallelism.dp=1 "
    "measure=quick measure.profile=false measure.warmup_steps=4"
)
SHORT = "measure.warmup_steps=2 measure.steps=6"
PARITY = (
    "model=tiny data=synthetic data.seq_len=128 precision=bf16_mixed parallelism.dp=1 "
    "measure=quick measure.profile=false measure.warmup_steps=2 measure.steps=8"
)
TOGETHER_S = 170
TESTS = (
    "tests/launchers/attention/test_block.py",
    "tests/measure/test_memory.py",
    "tests/launchers/every_engine/test_cuda.py",
)

TITAN = (
    "benchmarks/peers/torchtitan_7b.py --training.local_batch_size=${batch.micro} --training.seq_len=${data.seq_len} "
    "--training.steps=1000 --training.dtype=bfloat16 --compile.enable --activation_checkpoint.mode=none "
    "--metrics.log_freq=1 --metrics.disable_color_printing"
)
TRAINER = (
    "benchmarks/peers/trainer_7b.py --seq_len ${data.seq_len} --per_device_train_batch_size ${batch.micro} "
    "--gradient_accumulation_steps ${batch.accumulation} --max_steps 1000 --logging_steps 1 --optim adamw_torch_fused "
    "--max_grad_norm 0 --lr_scheduler_type constant --save_strategy no --report_to none --disable_tqdm True "
    "--torch_compile True"
)

# A name, what is typed, and for how many seconds at most it runs.
Command = tuple[str, list[str], int]


@dataclass(frozen=True)
class Step:
    """A sweep of its own name, which is ended after so many seconds; `words` are those of llmexp."""

    name: str
    limit_s: int
    words: str


def together() -> list[Step]:
    """Return the sweeps whose losses are compared and whose speeds are not: they share the card."""
    return [
        Step("parity_torch", TOGETHER_S, f"{PARITY} engine=torch method=Naive,F,R,RS,Z1,Z2"),
        Step("parity_torch_more", TOGETHER_S, f"{PARITY} engine=torch method=Z3,Z2+O,Z3+O,C,F+C,Q"),
        Step("parity_deepspeed", TOGETHER_S, f"{PARITY} engine=deepspeed method=Naive,F,R,RS,Z1,Z2"),
        Step("parity_deepspeed_more", TOGETHER_S, f"{PARITY} engine=deepspeed method=Z3,Z2+O,Z3+O,C,F+C,Q"),
        Step("parity_megatron", TOGETHER_S, f"{PARITY} engine=megatron method=Naive,F,R,RS,Z1"),
        Step("parity_adapters", TOGETHER_S, f"{PARITY} task=finetune engine=torch,deepspeed method=L+F,QL+F,P+F"),
    ]


def steps(part: int, sequences: int) -> list[Step]:
    """Return a part's sweeps; `sequences` of 4096 positions are one pass of 7B: 1 with 80 GB, 3 with 140."""
    few = sequences == 1
    torch, batch = f"engine=torch {TRAINED}", f"batch.micro={sequences}"
    if part == 1:
        profiled = ["measure.profile=true", "measure.profile_steps=1"]
        words = [word for word in torch.split() if not word.startswith("measure.profile")]
        return [
            Step("compiled", 90, " ".join([*words, *profiled, batch, "method=F+C"])),
            Step("limits", 95, "task=micro model=7b micro.ranks=1 measure.point_limit_s=1"),
        ]
    if part == 2:
        passes = f"method=F+C {SHORT}"
        found = [Step("accumulation", 90, f"{torch} {batch} batch.accumulation={8 if few else 4} {passes}")]
        if few:
            eight = "optimizer=adamw8bit batch.micro=2 batch.accumulation=4"
            found.append(Step("adamw8bit", 90, f"{torch} {eight} {passes}"))
        return [*found, Step("engines", 130, f"engine=torch,deepspeed,megatron method=F {TRAINED}")]
    if part == 3:
        tuned = "task=finetune engine=torch model=7b data=synthetic data.seq_len=1024 parallelism.dp=1"
        measured = "precision=bf16_pure measure=quick measure.profile=false batch.micro=4"
        served = "task=serve engine=transformers model=1b serve.rate=[8,max] serve.requests=64"
        return [
            Step("finetune", 140, f"{tuned} {measured} method=L+F,QL+F,L+F+C"),
            Step("serve", 150, f"{served} serve.prompt.tokens=512 serve.output.tokens=128"),
        ]
    if part == 5:
        return [*_peers(torch, batch), *_largest(few)]
    return [
        Step("kernels", 75, f"{torch} {batch} method=F kernels.flash=fa2,cudnn measure.steps=10"),
        Step("liger", 50, f"{torch} {batch} method=F kernels.liger=true measure.steps=10"),
        Step("recomputed", 80, f"{torch} method=F+R+C batch.micro=8 {SHORT}"),
        Step("modules", 120, "+experiment=gpu_modules method=F,F+C data.seq_len=2048 batch.micro=1"),
    ]


def _peers(torch: str, batch: str) -> list[Step]:
    """Return F+C and other trainers on the same model, one after the other on the same card."""
    script = f"engine=script {TRAINED} {batch}"
    return [
        Step("peers_ours", 60, f"{torch} {batch} method=F+C"),
        Step("peers_torchtitan", 80, f"{script} engine.options.preset=torchtitan {_typed(TITAN)}"),
        Step("peers_trainer", 80, f"{script} engine.launcher=python engine.options.preset=trainer {_typed(TRAINER)}"),
    ]


def _typed(command: str) -> str:
    """Return the word that names a program's command line."""
    return shlex.quote(f'engine.options.command="{command}"')


def _largest(few: bool) -> list[Step]:
    """Return methods of Table IV at batches of which the plan is least sure: the card says whether they fit."""
    batches = {"Naive": 8, "F": 16, "F+C": 16} if few else {"Naive": 16, "F": 32, "F+C": 32}
    table = "engine=torch model=7b data=synthetic data.seq_len=350 precision=bf16_pure parallelism.dp=1"
    measured = "measure=quick measure.profile=false measure.warmup_steps=1 measure.steps=2"
    return [
        Step(f"largest_{method.replace('+', '')}", 45, f"{table} {measured} method={method} batch.micro={batch}")
        for method, batch in batches.items()
    ]


def main(words: Sequence[str] | None = None) -> int:
    """Measure the parts that are named; return 1 where any step failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_parts", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("parts", nargs="*", type=int, choices=PARTS, default=[*PARTS])
    parser.add_argument("--wheels", type=Path, help="a folder of wheels that are installed first, of a bare machine")
    parser.add_argument("--into", type=Path, default=Path("outputs"), help="where the records go; outputs without it")
    args = parser.parse_args(words)
    env = (_installed(args.wheels) if args.wheels else dict(os.environ)) | {"PYTHONSAFEPATH": "1"}
    into = args.into.absolute()
    into.mkdir(parents=True, exist_ok=True)
    failed = False
    for part in args.parts:
        for at_once in _commands(part, into):
            with ThreadPoolExecutor(len(at_once)) as pool:
                failed |= any([*pool.map(partial(_run, env), at_once)])
            _pack(into, part)  # whoever ends the part early keeps what it has
    return int(failed)


def _commands(part: int, into: Path) -> Iterator[list[Command]]:
    """Yield lists of commands with their names and limits; those of a list run at once."""
    if part == 1:
        pytest = [sys.executable, "-m", "pytest", "-q", "--maxfail=8", "-W", "ignore", "-p", "no:cacheprovider"]
        tests = ("tests marked gpu", [*pytest, "-m", "gpu", *TESTS], TOGETHER_S)
        yield [tests, *(_command(step, part, into) for step in together())]
    for step in steps(part, _sequences()):
        yield [_command(step, part, into)]


def _command(step: Step, part: int, into: Path) -> Command:
    words = [f"sweep.name=part{part}_{step.name}", f"sweep.outputs={into}", "tracking=none", *shlex.split(step.words)]
    return step.name, [sys.executable, "-m", "llmexp", *words], step.limit_s


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


def _run(env: Mapping[str, str], asked: Command) -> bool:
    """Run a command for so long at most, with its output; tell whether it failed or took longer."""
    name, command, limit_s = asked
    begun_s = time.monotonic()
    with subprocess.Popen(command, env=env) as process:
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            process.terminate()
            code = process.wait()  # llmexp ends its ranks and writes its result first
    print(f"== {name}: exit code {code} after {time.monotonic() - begun_s:.0f} s of {limit_s}", flush=True)
    return code != 0


def _pack(into: Path, part: int) -> None:
    """Pack what a part recorded, without traces, into one file that is small enough to be taken along."""
    with tarfile.open(into / f"part{part}.tar.gz", "w:gz") as packed:
        for folder in sorted(into.glob(f"part{part}_*")):
            packed.add(folder, folder.name, filter=lambda member: None if TRACES in Path(member.name).parts else member)


if __name__ == "__main__":
    sys.exit(main())
