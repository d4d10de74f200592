from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from llmexp.record.folder import RunFolder
from llmexp.slurm.board import Advances, table_of
from llmexp.slurm.follow import Followed
from llmexp.slurm.jobs import Submitted
from llmexp.slurm.queue import JobState, QueuedJob


@pytest.fixture
def runs(tmp_path: Path, tiny_plan) -> list[Followed]:
    """A run that waits, and one that runs, of 3 steps."""
    found = []
    for number, (method, state) in enumerate(
        {"F": JobState("PENDING", "Resources"), "R": JobState("RUNNING", nodes="n1")}.items()
    ):
        folder = RunFolder(tmp_path / "main" / f"tiny_{method}_{number:012}")
        folder.write(folder.plan_path, tiny_plan(method).model_copy(update={"label": "batch.micro=2"}))
        found.append(Followed(Submitted(folder, QueuedJob(f"7_{number}", "a"), ""), state))
    return found


@pytest.fixture
def shown(runs, monkeypatch):
    """The table's lines, by the run that they are of."""
    monkeypatch.setattr("llmexp.slurm.board.READ_EVERY_S", 0.0)
    advances = Advances()

    def show() -> dict[str, str]:
        console = Console(width=200)
        with console.capture() as capture:
            console.print(table_of(runs, advances))
        title, _, *rows = capture.get().splitlines()
        assert title.strip() == "1 running, 1 pending, 0 ended of 2"
        return {row[:6]: " ".join(row.split()) for row in rows}

    return show


def test_a_running_jobs_steps_and_rate_are_shown_as_they_are_written(runs, shown, write_samples):
    assert shown() == {
        "tiny R": "tiny R batch.micro=2 7_1 RUNNING (n1)",
        "tiny F": "tiny F batch.micro=2 7_0 PENDING (Resources)",
    }
    repeat = runs[1].submitted.folder.repeat(0)
    repeat.mkdir()
    assert shown()["tiny R"] == "tiny R batch.micro=2 7_1 RUNNING (n1) starting"
    write_samples(repeat, 0, [(0.5, 2.0), (0.5, 2.0)], range(1))
    assert "RUNNING (n1) step 2/3 (measured) · 1,400 tokens/s" in shown()["tiny R"]


def test_an_attempt_that_began_again_is_read_from_its_start(runs, shown, write_samples):
    repeat = runs[1].submitted.folder.repeat(0)
    write_samples(repeat, 0, [(0.5, 2.0)] * 3, range(1))
    assert "step 3/3" in shown()["tiny R"]
    repeat.rename(repeat.with_name("aside"))
    write_samples(repeat, 0, [(0.5, 2.0)], range(1))
    assert "step 1/3 (warm-up)" in shown()["tiny R"]
