from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
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
    assert str(place) not in _working_trees()


@pytest.mark.skipif(not (HERE / ".git").exists(), reason="the tests run outside a checkout of git")
def test_where_it_is_terminated_the_commit_and_what_measures_it_are_gone(tmp_path: Path) -> None:
    busy = "import os, time; print(os.getpid(), flush=True); time.sleep(1000)"
    code = (
        "import sys; from benchmarks import commits; "
        f"commits.LLMEXP = (sys.executable, '-c', {busy!r}); sys.argv[1:] = ['HEAD']; sys.exit(commits.main())"
    )
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=HERE, env=environment, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout
        measuring, there_were = int(program.stdout.readline()), _working_trees()
        program.terminate()
    assert program.returncode == 143
    assert str(tmp_path) in there_were
    assert not psutil.pid_exists(measuring)
    assert str(tmp_path) not in _working_trees()
    assert not list(tmp_path.iterdir())


def _working_trees() -> str:
    words = ["git", "-C", str(HERE), "worktree", "list"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def test_the_sides_take_turns_repeat_by_repeat_and_each_goes_first_as_often() -> None:
    order = turns(["Naive", "F", "R"], 2)
    pairs = [(one, other) for one, other in zip(order[::2], order[1::2], strict=True)]
    assert all(one[:2] == other[:2] and {one[2], other[2]} == {BASE, HEAD} for one, other in pairs)
    assert [one[2] for one, _ in pairs] == [BASE, HEAD, BASE, HEAD, BASE, HEAD]
    assert len({one[:2] for one, _ in pairs}) == 6
