"""From nothing to the first answer on a laptop, for one card and on a cluster: what a newcomer types, in seconds."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.figure import Figure
from benchmarks.interval import Interval
from chaos.cluster import Cluster, missing

ROOT = Path(__file__).parents[1]
# What the answer of each path has in it.
TABLE, FITS = "tokens/s", "fits"


def paths(folder: Path) -> Iterator[Figure]:
    """Yield the seconds of each step, in a new clone of what is committed here; raises where a step gives no answer."""
    clone = folder / "llmexp"
    _done(["git", "clone", "--quiet", str(ROOT), str(clone)], folder)
    yield _step("laptop: make run, with installation", ["make", "run"], clone, TABLE)
    yield _step("laptop: make run again", ["make", "run"], clone, TABLE)
    yield from _one_card(clone, folder)
    yield from _cluster(clone, folder)


def _one_card(clone: Path, folder: Path) -> Iterator[Figure]:
    """Install without torch and ask what fits a card; where there is one, fine-tune on it."""
    python = folder / "plans" / "bin" / "python"
    install = (
        f"python3 -m venv {folder / 'plans'} && {python} -m pip install --quiet {clone} -c {clone}/constraints.txt"
    )
    yield _step("one card: pip install, without torch", ["sh", "-c", install], clone)
    words = ["task=finetune", "model=7b", "method=L,QL"]
    yield _step(
        "one card: does 7B fit?", [str(python.with_name("llmexp")), "plan", *words, "hardware=rtx4090"], clone, FITS
    )
    if shutil.which("nvidia-smi"):
        run = [str(_python(clone)), "-m", "llmexp", *words, "measure=quick", "sweep.name=card"]
        yield _step("one card: LoRA and QLoRA of 7B, measured", run, clone, TABLE)


def _cluster(clone: Path, folder: Path) -> Iterator[Figure]:
    """Measure a first sweep as jobs of a SLURM of this host's own, where its programs are installed."""
    if missing():
        return
    install = [str(_python(clone)), "-m", "pip", "install", "--quiet", "-e", ".[train,slurm]", "-c", "constraints.txt"]
    yield _step("cluster: pip install, for SLURM too", install, clone)
    root = Path(tempfile.mkdtemp(prefix="llmexp-slurm-"))  # a socket's path must be short
    try:
        with Cluster(root) as running:
            words = ["model=tiny", "hardware=cpu", "method=Naive,F", "measure=quick", "sweep.name=cluster"]
            command = [str(_python(clone)), "-m", "llmexp", *words, "hydra/launcher=slurm", "hydra.launcher.poll_s=1"]
            yield _step("cluster: two methods as SLURM jobs", command, clone, TABLE, running.env)
    finally:
        shutil.rmtree(root)


def _step(
    name: str, command: list[str], folder: Path, answer: str = "", env: Mapping[str, str] | None = None
) -> Figure:
    began = time.perf_counter()
    said = _done(command, folder, env)
    taken_s = time.perf_counter() - began
    if answer not in said:
        raise RuntimeError(f"{name}: {answer!r} is not in its answer:\n{said[-2000:]}")
    return Figure(name, "s", Interval(taken_s, taken_s, taken_s), 1)


def _done(command: list[str], folder: Path, env: Mapping[str, str] | None = None) -> str:
    """Return what a command prints, run as in a new shell; raises where it fails."""
    own = {name: value for name, value in (env or os.environ).items() if not name.startswith(("MAKE", "VIRTUAL_ENV"))}
    done = subprocess.run(command, cwd=folder, env=own, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}"[-4000:])
    return done.stdout


def _python(clone: Path) -> Path:
    return clone / ".venv" / "bin" / "python"
