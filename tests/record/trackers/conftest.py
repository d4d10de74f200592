from __future__ import annotations

from pathlib import Path

import pytest

from llmexp.record.trackers import also

# A tracker of a package, which does what a variable says before it writes all that it was given.
GUEST = """
import os, subprocess, sys, time
from llmexp.extend import ConfigError, RunTracker

class Guest(RunTracker):
    name = "guest"

    def write(self, run, folder):
        exec(os.environ.get("GUEST_DOES", ""))
        texts = [file.content().decode(errors="replace") for file in run.files]
        (folder / "run.txt").write_text("\\n".join([repr(run), *texts]))

GUEST = Guest()
"""


@pytest.fixture(autouse=True)
def _fresh_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget failures of earlier tests."""
    monkeypatch.setattr(also, "_gave_up", set())


@pytest.fixture
def guest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What pip leaves of a package with that tracker; the processes that write find it, and so its module."""
    site = tmp_path / "site"
    info = site / "guest-0.3.dist-info"
    info.mkdir(parents=True)
    (site / "guest.py").write_text(GUEST)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: guest\nVersion: 0.3\n")
    (info / "entry_points.txt").write_text("[llmexp.trackers]\nguest = guest:GUEST\n")
    monkeypatch.setenv("PYTHONPATH", str(site))
    return site / "guest.py"
