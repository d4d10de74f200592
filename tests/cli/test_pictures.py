from __future__ import annotations

from pathlib import Path

import pytest

from llmexp.cli.pictures import draw_missing
from llmexp.record.folder import RunFolder, find_runs
from llmexp.record.mlflow import SyncSummary

PICTURES = ["loss.png", "step_time.png"]


@pytest.fixture
def undrawn(llmexp, runner, here: Path, write_samples, monkeypatch) -> list[RunFolder]:
    """A sweep of two runs of which one has samples, as a node without matplotlib leaves it."""
    with monkeypatch.context() as node:
        node.setattr("llmexp.report.plots.can_draw", lambda: False)
        assert llmexp("method=Naive,Z2", "hardware=cpu", "tracking=none")[0] == 0
    runs = find_runs(here / "outputs")
    write_samples(runs[0].repeat(0), 0, [(0.1, 2.0)] * 5)
    return runs


def test_sync_draws_what_is_missing_before_it_copies(llmexp, undrawn, here: Path, monkeypatch):
    copied = []

    def note(runs, tracking):
        copied.append([path.name for path in sorted(runs[0].figures.glob("*"))])
        return SyncSummary()

    monkeypatch.setattr("llmexp.record.mlflow.sync", note)
    assert llmexp("sync")[0] == 0
    assert copied == [PICTURES]
    assert (here / "outputs" / "main" / "report.png").exists()
    assert not undrawn[1].figures.exists()


def test_what_is_drawn_is_not_drawn_again(undrawn, here: Path):
    draw_missing(undrawn)
    pictures = [undrawn[0].figures / name for name in PICTURES] + [here / "outputs" / "main" / "report.png"]
    for picture in pictures:
        picture.write_text("kept")
    draw_missing(undrawn)
    assert [picture.read_text() for picture in pictures] == ["kept"] * 3


def test_without_matplotlib_nothing_is_drawn_and_nothing_fails(undrawn, monkeypatch):
    monkeypatch.setattr("llmexp.cli.pictures.can_draw", lambda: False)
    draw_missing(undrawn)
    assert not undrawn[0].figures.exists()


def test_a_run_that_cannot_be_read_does_not_stop_the_others(undrawn):
    undrawn[1].result_path.write_text("{}")
    draw_missing(undrawn[::-1])
    assert undrawn[0].figures.exists()
