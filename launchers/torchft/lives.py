"""What a replica is told when it starts, and what it writes of each step that it begins."""

from __future__ import annotations

from pathlib import Path

from llmexp.record.samples import Record, StepSample, read_samples

# The engine's options.
RECOVERY, KILLS, CHECKPOINTS, HEARTBEAT = "recovery", "kill_at_steps", "checkpoint_every_steps", "heartbeat_timeout_s"
LOOPBACK = "127.0.0.1"
# Variables of a replica: where the supervisor's lighthouse answers, which process of its rank it is, from 0, and the
# steps in which it is still to die, as JSON.
LIGHTHOUSE, LIFE, KILLS_LEFT = "LLMEXP_LIGHTHOUSE", "LLMEXP_LIFE", "LLMEXP_KILLS_LEFT"


class StepRecord(Record):
    """One line of steps.<rank>.jsonl; times are Unix seconds.

    `life` counts the processes of this rank from 0. Without `ended_s` the replica was killed in this step. Without
    `sample` the step was not committed here, or others trained it while this replica took their weights.
    """

    step: int
    life: int
    began_s: float
    ended_s: float | None = None
    replicas: int = 0
    healed: bool = False
    checkpoint: bool = False
    sample: StepSample | None = None


def steps_path(folder: Path, rank: int) -> Path:
    """Return the file of a rank's steps, beside its samples."""
    return folder / f"steps.{rank}.jsonl"


def read_steps(folder: Path, rank: int) -> list[StepRecord]:
    """Return what the replica wrote, in all its lives; empty before its first step."""
    path = steps_path(folder, rank)
    return read_samples(path, StepRecord) if path.exists() else []


def cut_last_line(path: Path) -> None:
    """Remove a last line that a kill left unfinished, before another life appends its own."""
    if not path.exists():
        return
    with path.open("r+b") as file:
        file.truncate(file.read().rfind(b"\n") + 1)
