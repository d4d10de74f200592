"""The account of a user's program at its end."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from planning import make_plan

from llmexp.launchers.rank.frame import Rank
from llmexp.launchers.script.program_run import ProgramRun
from llmexp.measure import memory


@pytest.mark.parametrize(("allocated", "told"), [(0, None), (5, 5)])
def test_an_allocator_that_was_not_used_has_no_peak(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allocated: int, told: int | None
):
    (tmp_path / "train.py").touch()
    plan = make_plan("engine=script", f"engine.options.command={tmp_path / 'train.py'}", "hardware=cpu")
    peaks = {"peak_allocated_bytes": allocated, "peak_reserved_bytes": allocated, "peak_device_used_bytes": 9}
    monkeypatch.setattr(memory.Peaks, "summary", lambda _: peaks | {"peak_rss_bytes": 7})
    found = ProgramRun(plan, Rank(0, 0, 1, tmp_path), torch.device("cpu")).summary(1.0, "output of rank 0")
    assert (found.peak_allocated_bytes, found.peak_reserved_bytes) == (told, told)
    assert (found.peak_device_used_bytes, found.peak_rss_bytes) == (9, 7)
