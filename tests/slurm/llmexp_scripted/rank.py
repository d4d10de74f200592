"""Stands in for the one rank of a run on a node: rank <repeat's folder> <behavior> <node>."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

FOLDER, RANK = Path(sys.argv[1]), int(sys.argv[3])
# Each seed has a speed of its own, so that no run's figures pass for another's.
CONFIG = json.loads((FOLDER.parent / "plan.json").read_text())["config"]
STEP_S = 0.01 + CONFIG["seed"] / 1000


def step(index: int) -> None:
    times = {"index": index, "warmup": index < 1, "t_start_s": index * STEP_S, "t_end_s": (index + 1) * STEP_S}
    with (FOLDER / f"samples.{RANK}.jsonl").open("a") as file:
        file.write(json.dumps(times | {"positions": 100, "real_tokens": 90, "loss": 2.0}) + "\n")


def well() -> None:
    for index in range(3):
        step(index)
    counts = {
        "parameters": 10,
        "trainable_parameters": 10,
        "peak_rss_bytes": 1,
        "state_bytes": {},
        "what_ran": {"backend": "none"},
    }
    (FOLDER / f"rank.{RANK}.json").write_text(
        json.dumps({"rank": RANK, "window_wall_s": 2 * STEP_S, "time_to_first_step_s": 1.0} | counts)
    )
    if CONFIG["task"].get("save_model"):
        save_model()


def save_model() -> None:
    """Leave a checkpoint of one number."""
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    (FOLDER / "model").mkdir()
    (FOLDER / "model" / "config.json").write_text("{}")
    (FOLDER / "model" / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))


def broken() -> None:
    raise ValueError("no such thing")


def endless() -> None:
    step(0)
    print("going on", flush=True)
    time.sleep(1000)


def _released() -> None:
    step(0)
    while not (FOLDER.parent.parent / "released").exists():
        time.sleep(0.05)


def well_when_released() -> None:
    _released()
    (FOLDER / f"samples.{RANK}.jsonl").unlink()
    well()


def broken_when_released() -> None:
    _released()
    broken()


def again() -> None:
    """Endless at first, well once the run is tried again."""
    _at_first(endless)


def broken_at_first() -> None:
    _at_first(broken)


def deaf_at_first() -> None:
    _at_first(deaf)


def _at_first(behave: Callable[[], None]) -> None:
    if (FOLDER.parent / "previous").exists():
        well()
    else:
        behave()


def deaf() -> None:
    """End the process that supervises the run, as a kill that nobody can answer does."""
    step(0)
    begun = json.loads((FOLDER.parent / "events.jsonl").read_text().splitlines()[0])
    os.kill(begun["pid"], signal.SIGKILL)
    time.sleep(1000)


if __name__ == "__main__":
    globals()[sys.argv[2]]()
