from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.process import cost_of

BURN = "import time\nwhile time.process_time() < 0.3: pass"


def test_a_command_and_its_children_are_told_apart(tmp_path: Path) -> None:
    parent = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {BURN!r}])"
    cost = cost_of([sys.executable, "-c", parent], tmp_path)
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


def test_the_peak_of_memory_is_the_commands_own(tmp_path: Path) -> None:
    """Asked by a small process, as benchmarks are: a child's peak begins with what its parent held when it forked."""
    imports = "import sys; from pathlib import Path; from benchmarks.process import cost_of"
    asks = f"{imports}; print(cost_of([sys.executable, '-c', sys.argv[1]], Path.cwd()).peak_rss_bytes)"
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    held = [f"held = b'x' * {size}" for size in (1, 10**8)]
    small, large = (
        int(subprocess.check_output([sys.executable, "-c", asks, one], cwd=tmp_path, env=env)) for one in held
    )
    assert small < 10**8 < large
