"""A launcher and its ranks, without torch: ranks <repeat's folder> launcher.<node>|rank.<r>.

Each rank takes its steps, and breaks at a signal.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any, Never

from llmexp.record.folder import RunFolder
from llmexp.record.lock import end_with_holder
from llmexp.record.process import die_with_parent

STEP_S = 0.02
RANKS = 2
# These words of the command line identify a process.
LAUNCHER, RANK = "launcher.", "rank."
# The signals at which a rank breaks, and how.
LEAVES, RAISES, RUNS_OUT_OF_MEMORY = signal.SIGHUP, signal.SIGUSR2, signal.SIGALRM


def launch(folder: Path, node: int) -> int:
    """Start this node's ranks and return the exit code.

    When one fails, the others are ended, as launchers do, and its exit code is returned.
    """
    hardware = _planned(folder)["hardware"]
    of_a_node = RANKS // hardware["nodes"]
    ranks = range(node * of_a_node, (node + 1) * of_a_node)
    logs = {rank: (folder / f"log.{rank}.txt").open("ab") for rank in ranks}
    started = [
        subprocess.Popen([sys.executable, "-m", "chaos.ranks", str(folder), f"{RANK}{rank}"], stderr=log)
        for rank, log in logs.items()
    ]
    while any(rank.poll() is None for rank in started) and not any(rank.poll() for rank in started):
        time.sleep(STEP_S)
    for rank in started:
        rank.terminate()
    return next((abs(code) for rank in started if (code := rank.wait())), 0)


def measure(folder: Path, rank: int) -> None:
    """Take all steps, then write the rank's summary."""
    protocol = _planned(folder)["measure"]
    for step in range(protocol["warmup_steps"] + protocol["steps"]):
        time.sleep(STEP_S)
        write_step(folder / f"samples.{rank}.jsonl", step, step < protocol["warmup_steps"])
    known = {
        "time_to_first_step_s": 1.0,
        "parameters": 10,
        "trainable_parameters": 10,
        "peak_rss_bytes": 2**20,
        "state_bytes": {},
    }
    _write(
        folder / f"rank.{rank}.json",
        {"rank": rank, "window_wall_s": protocol["steps"] * STEP_S, "what_ran": {"backend": "scripted"}} | known,
    )


def write_step(samples: Path, step: int, warmup: bool) -> None:
    """Append one step's sample."""
    times = {"t_start_s": step * STEP_S, "t_end_s": (step + 1) * STEP_S}
    with samples.open("a") as file:
        file.write(
            json.dumps(
                {"index": step, "warmup": warmup, **times, "positions": 100, "real_tokens": 100, "loss": 1 / (1 + step)}
            )
            + "\n"
        )


def obey_faults(folder: Path, rank: int) -> None:
    """Break when the suite sends a signal."""

    def leave(number: int, frame: FrameType | None) -> Never:
        os._exit(3)

    def fail(number: int, frame: FrameType | None) -> Never:
        raise RuntimeError("the suite wanted an exception")

    def run_out_of_memory(number: int, frame: FrameType | None) -> Never:
        _write(
            folder / f"failure.{rank}.json",
            {
                "rank": rank,
                "kind": "oom",
                "message": "MemoryError: the suite wanted it",
                "allocator": {"allocated_bytes": 7},
            },
        )
        os._exit(1)

    signal.signal(LEAVES, leave)
    signal.signal(RAISES, fail)
    signal.signal(RUNS_OUT_OF_MEMORY, run_out_of_memory)


def _planned(folder: Path) -> Any:
    return json.loads((folder.parent / "plan.json").read_text())["config"]


def _write(path: Path, record: dict[str, Any]) -> None:
    whole = path.with_suffix(".part")
    whole.write_text(json.dumps(record))
    whole.replace(path)


def main(folder: Path, role: str) -> int:
    """Play the launcher or a rank; return the exit code."""
    if role.startswith(LAUNCHER):
        return launch(folder, int(role.removeprefix(LAUNCHER)))
    die_with_parent()
    end_with_holder(RunFolder(folder.parent).drivers)
    rank = int(role.removeprefix(RANK))
    obey_faults(folder, rank)
    measure(folder, rank)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
