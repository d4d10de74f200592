"""One sweep in two environments, as a person types it.

Real ranks run in another interpreter that has no llmexp, and both are in one table.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest
from patience import HANG_S

from llmexp.record.folder import find_runs

pytestmark = [pytest.mark.sweep, pytest.mark.ranks]


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """An environment that borrows this one's libraries, and another version of one of them, as far as metadata says."""
    venv.create(tmp_path / "other", symlinks=True)
    (site,) = (tmp_path / "other").glob("lib/python*/site-packages")
    (site / "base.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    (site / "megatron_core-0.0.1.dist-info").mkdir()
    (site / "megatron_core-0.0.1.dist-info" / "METADATA").write_text("Name: megatron-core\nVersion: 0.0.1\n")
    return tmp_path / "other" / "bin" / "python"


def test_two_environments_stand_in_one_table(tmp_path: Path, other: Path) -> None:
    (tmp_path / "conf" / "runtime").mkdir(parents=True)
    (tmp_path / "conf" / "runtime" / "newer.yaml").write_text(f"name: newer\npython: {other}\n")
    words = [
        "--config-dir",
        "conf",
        "runtime=here,newer",
        "model=tiny",
        "engine=torch",
        "parallelism.dp=1",
        "measure=smoke",
        "measure.profile=false",
        "tracking=none",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "llmexp", *words], cwd=tmp_path, capture_output=True, text=True, timeout=HANG_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    used = {run.result().environment["interpreter"] for run in find_runs(tmp_path / "outputs")}
    assert used == {sys.executable, str(other)}
    assert "runtime newer other: megatron-core 0.0.1" in done.stdout
    losses = {run.result().metrics["final_loss"].mean for run in find_runs(tmp_path / "outputs")}
    assert len(losses) == 1
