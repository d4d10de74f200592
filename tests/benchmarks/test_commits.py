from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.commits import BASE, HEAD, HERE, checked_out, importable, turns


def test_packages_are_imported_from_the_folder_of_their_side(tmp_path: Path) -> None:
    path = importable(HERE, tmp_path / "side")
    code = "import llmexp, llmexp.conf, llmexp.launchers; print(llmexp.__path__, llmexp.conf.__path__)"
    words = [sys.executable, "-c", code]
    environment = os.environ | {"PYTHONPATH": str(path)}
    said = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout
    assert said == f"{[str(path / 'llmexp')]} {[str(path / 'llmexp' / 'conf')]}\n"


@pytest.mark.skipif(not (HERE / ".git").exists(), reason="the tests run outside a checkout of git")
def test_a_commit_is_beside_the_working_tree_and_then_gone(tmp_path: Path) -> None:
    place = tmp_path / "there"
    with checked_out("HEAD", place):
        assert (place / "llmexp" / "__init__.py").exists()
    assert not place.exists()
    listed = subprocess.run(["git", "-C", HERE, "worktree", "list"], capture_output=True, text=True, check=True).stdout
    assert str(place) not in listed


def test_each_side_goes_first_as_often_as_the_other() -> None:
    order = turns(["Naive", "F", "R", "Z2"])
    assert [side for _, side in order[::2]] == [BASE, HEAD, BASE, HEAD]
    assert sorted(order) == sorted((method, side) for method in ("Naive", "F", "R", "Z2") for side in (BASE, HEAD))
