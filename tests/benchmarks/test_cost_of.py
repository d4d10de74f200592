from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from benchmarks.process import cost_of

BURN = "import time\nwhile time.process_time() < 0.3: pass"


def test_a_command_and_its_children_are_told_apart(tmp_path: Path) -> None:
    parent = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {BURN!r}])"
    asked_s = time.monotonic()
    cost = cost_of([sys.executable, "-c", parent], tmp_path)
    assert asked_s < cost.begun_s < cost.begun_s + cost.wall_s < time.monotonic()
    assert cost.own_cpu_s < 0.3 <= cost.all_cpu_s + 0.02
    assert cost.wall_s >= 0.29


def test_what_runs_beside_can_see_what_the_command_does(tmp_path: Path) -> None:
    seen = []

    def watch() -> None:
        while not (tmp_path / "begun").exists():
            pass
        seen.append((tmp_path / "ended").exists())
        (tmp_path / "go").touch()

    waits = (
        "import os, pathlib\npathlib.Path('begun').touch()\nwhile not os.path.exists('go'): "
        "pass\npathlib.Path('ended').touch()"
    )
    cost_of([sys.executable, "-c", waits], tmp_path, beside=watch)
    assert seen == [False]
    assert (tmp_path / "ended").exists()


def test_a_failure_is_told_with_the_commands_own_words(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="not today"):
        cost_of([sys.executable, "-c", "raise SystemExit('not today')"], tmp_path)


def test_the_peak_of_memory_is_the_commands_own_whatever_asks_for_it(tmp_path: Path) -> None:
    size = 200_000_000
    held = b"x" * size
    small, large = (
        cost_of([sys.executable, "-c", f"held = b'x' * {many}"], tmp_path).peak_rss_bytes for many in (1, size)
    )
    assert small < len(held) < large


def test_what_cannot_be_run_is_told(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"(?s)no-such-program cannot be run:.*No such file"):
        cost_of(["no-such-program"], tmp_path)
