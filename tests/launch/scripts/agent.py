"""Stands in for a launcher and its ranks: agent.py <repeat's folder> <behavior>, without torch."""

import faulthandler
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(sys.argv[1])
PLAN = json.loads((FOLDER.parent / "plan.json").read_text())
MEASURE = PLAN["config"]["measure"]
RANKS = PLAN["dims"]["dp"]
STEPS = MEASURE["warmup_steps"] + MEASURE["steps"]
STEP_S = 0.01


def step(rank: int, index: int) -> None:
    sample = {
        "index": index,
        "warmup": index < MEASURE["warmup_steps"],
        "t_start_s": index * STEP_S,
        "t_end_s": (index + 1) * STEP_S,
        "positions": 100,
        "real_tokens": 90,
        "record_squares": 8100,
        "loss": 2.0,
        "memory_bytes": 2**30,
    }
    with (FOLDER / f"samples.{rank}.jsonl").open("a") as file:
        file.write(json.dumps(sample) + "\n")


def summary(rank: int) -> None:
    record = {
        "rank": rank,
        "window_wall_s": MEASURE["steps"] * STEP_S,
        "time_to_first_step_s": 1.0,
        "parameters": 10,
        "trainable_parameters": 10,
        "peak_rss_bytes": 2**30,
        "state_bytes": {},
        "what_ran": {"backend": "gloo"},
        "environment": {"omp_num_threads": os.environ.get("OMP_NUM_THREADS"), "extra": os.environ.get("EXTRA")},
    }
    (FOLDER / f"rank.{rank}.json").write_text(json.dumps(record))


def failure(rank: int, kind: str, message: str) -> None:
    record = {"rank": rank, "kind": kind, "message": message, "allocator": {"allocated_bytes": 7}}
    (FOLDER / f"failure.{rank}.json").write_text(json.dumps(record))


def well(ranks: int = RANKS) -> None:
    for rank in range(ranks):
        for index in range(STEPS):
            step(rank, index)
        summary(rank)


def well_at_another_speed() -> None:
    global STEP_S
    STEP_S *= 1 + int(FOLDER.suffix[1:])
    well()


def incomplete() -> None:
    well(RANKS - 1)


def well_then_broken() -> None:
    well()
    if FOLDER.name != "repeat.0":
        (FOLDER / "rank.0.json").unlink()
        raise ValueError("the second time is one too many")


def out_of_memory() -> None:
    step(0, 0)
    failure(0, "error", "RuntimeError: connection closed by peer")
    failure(1, "oom", "OutOfMemoryError: tried to allocate 2 GiB")
    sys.exit(1)


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def broken() -> None:
    raise ValueError("no such thing")


def hang() -> None:
    """Leave two processes and stand still: a stubborn one in a session of its own, and one whose parent has gone.

    torchrun's ranks are in sessions of their own, too.
    """
    stubborn = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(1000)"
    )
    orphan = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {stubborn!r}], start_new_session=True)"
    subprocess.Popen([sys.executable, "-c", stubborn], start_new_session=True, stdout=subprocess.PIPE).stdout.readline()
    subprocess.run([sys.executable, "-c", orphan], check=True)
    faulthandler.register(signal.SIGUSR1, file=(FOLDER / "log.0.txt").open("w"))
    step(0, 0)
    time.sleep(1000)


def unheard() -> None:
    """Print steps for ever that nobody takes for steps."""
    with (FOLDER / "log.0.txt").open("a", buffering=1) as log:
        for index in range(1000):
            print("iteration", index, file=log)
            time.sleep(0.1)


def slow() -> None:
    for index in range(1000):
        step(0, index)
        time.sleep(0.1)


if __name__ == "__main__":
    globals()[sys.argv[2]]()
