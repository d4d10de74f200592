"""A hog beside a real run: the result says that it is not to be relied on, and why."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from patience import HANG_S

from llmexp.record.folder import find_runs

pytestmark = [pytest.mark.slow, pytest.mark.ranks]


def test_a_hog_beside_the_run_makes_it_unstable(tmp_path: Path) -> None:
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    # Few steps: the sample that holds their window tells of the seconds before it too. All cores are the ranks',
    # or one more taker would have room.
    words = (
        "method=Naive",
        "model.num_layers=1",
        "engine=torch",
        "engine.launcher=fork",
        "hardware=cpu",
        "measure=quick",
        "tracking=none",
    )
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as hog:
        try:
            command = [sys.executable, "-m", "llmexp", *words]
            done = subprocess.run(
                command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=HANG_S
            )
        finally:
            hog.kill()
    assert done.returncode == 0, done.stderr
    (folder,) = find_runs(tmp_path / "outputs")
    result = folder.result()
    assert result is not None
    assert result.stability is not None
    assert result.stability.verdict == "unstable"
    assert result.stability.other_cores is not None
    assert result.stability.other_cores > 0.4
    assert "contention: other processes took" in result.stability.words
    assert "! unstable: " in done.stdout
    assert "(1) unstable: contention: other processes took" in done.stdout
