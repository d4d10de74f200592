from __future__ import annotations

from pathlib import Path

import pytest

from llmexp.record.folder import RunFolder
from llmexp.record.sweep_order import ORDER, in_sweeps_order, note_order


def runs(sweep: Path, *names: str) -> list[RunFolder]:
    sweep.mkdir(exist_ok=True)
    return [RunFolder(sweep / name) for name in names]


def names(found: list[RunFolder]) -> list[str]:
    return [f"{run.path.parent.name}/{run.path.name}" for run in found]


def test_runs_are_in_the_order_of_their_sweeps_commands_and_new_ones_follow(tmp_path: Path) -> None:
    note_order(runs(tmp_path / "a", "z", "m"))
    note_order(runs(tmp_path / "a", "b", "m"))
    note_order(runs(tmp_path / "c", "y", "x"))
    found = runs(tmp_path / "a", "b", "k", "m", "z") + runs(tmp_path / "c", "x", "y")
    assert names(in_sweeps_order(found)) == ["a/z", "a/m", "a/b", "a/k", "c/y", "c/x"]


@pytest.mark.parametrize("text", ["", "{}", "[1, null]", "[" * 9999, "\xff"])
def test_a_broken_order_is_none(tmp_path: Path, text: str) -> None:
    found = runs(tmp_path / "a", "b", "z")
    (tmp_path / "a" / ORDER).write_bytes(text.encode("latin-1"))
    assert names(in_sweeps_order(found)) == ["a/b", "a/z"]


def test_an_order_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a file")
    note_order([RunFolder(tmp_path / "a" / "b")])
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a", "a file")]
