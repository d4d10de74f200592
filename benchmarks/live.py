"""The cost of following a run in MLflow while it goes on, by a process that reads its folder as the ranks write it."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.commands import LLMEXP, TINY
from benchmarks.figure import Figure
from benchmarks.interval import interval
from benchmarks.process import cost_of
from chaos.tracker import Server
from llmexp.record.folder import RunFolder, find_runs
from llmexp.record.identity import process_identity
from llmexp.record.mlflow.follower import Following
from llmexp.schema import TrackingConfig

# What a run of ten steps a second writes between two looks.
SAMPLES_A_LOOK, SAMPLES = 30, 1000
# They take such a run 100 s: 3 % of a core, on a slow processor.
LIMIT_S = 3.0


def following(folder: Path, times: int) -> Figure:
    """Measure the CPU seconds that 1000 steps of two ranks cost, sent to a real server, without MLflow's import."""
    server = Server(folder / "server")
    try:
        server.start()
        spent = [_followed(_begun(folder / str(number)), server.uri) for number in range(times + 1)][1:]
    finally:
        server.kill()
    return Figure(f"live tracking, {SAMPLES} steps", "CPU-s", interval(spent), times, limit=LIMIT_S)


def _begun(folder: Path) -> RunFolder:
    """Measure a short run, and let its folder look like that of one which goes on."""
    folder.mkdir(parents=True)
    cost_of([*LLMEXP, *TINY, "measure=smoke", "tracking=none"], folder)
    (run,) = find_runs(folder / "outputs")
    run.result_path.unlink()
    shutil.rmtree(run.drivers)  # its holder would be asked, who is gone
    run.event("running", **process_identity())
    return run


def _followed(run: RunFolder, uri: str) -> float:
    """Let the run's ranks write, look by look, and return what following it took after the first look."""
    follower = Following(run, TrackingConfig(name="mlflow", uri=uri))
    if not follower.send():
        raise RuntimeError(f"{run.path} is {run.state()}: there is nothing to follow")
    spent_s = 0.0
    for _ in _written(run):
        began_s = time.process_time()
        follower.send()
        spent_s += time.process_time() - began_s
    return spent_s


def _written(run: RunFolder) -> Iterator[None]:
    """Append copies of each rank's last sample, as later steps."""
    files = sorted(run.repeat(0).glob("samples.*.jsonl"))
    last = {file: json.loads(file.read_text().splitlines()[-1]) | {"warmup": False} for file in files}
    for first in range(0, SAMPLES, SAMPLES_A_LOOK):
        for file, sample in last.items():
            later = (_later(sample, number) for number in range(first, min(first + SAMPLES_A_LOOK, SAMPLES)))
            with file.open("a") as lines:
                lines.writelines(json.dumps(each) + "\n" for each in later)
        yield


def _later(sample: dict[str, float], number: int) -> dict[str, float]:
    taken_s = (number + 1) * (sample["t_end_s"] - sample["t_start_s"])
    moved = {name: sample[name] + taken_s for name in ("t_start_s", "t_end_s", "at_s")}
    return sample | moved | {"index": sample["index"] + number + 1}
