"""The cost of a copy to MLflow: of a run alone, and of each further one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import copying
from llmexp.record.folder import RunFolder

IMPORT_S, RUN_S = 2.0, 0.1


@pytest.fixture
def copied(monkeypatch, tmp_path):
    """Let each program cost its import and the runs that it copies, and return the names of those copied together."""
    found: list[list[str]] = []

    def cost(command, folder):
        paths = command[4:] if command[2] == copying._COPY else ()
        if paths:
            found.append([Path(path).name for path in paths])
        return SimpleNamespace(all_cpu_s=IMPORT_S + RUN_S * len(paths))

    monkeypatch.setattr(copying, "cost_of", cost)
    monkeypatch.setattr(copying, "find_runs", lambda folder: [])
    monkeypatch.setattr(
        copying,
        "multiply",
        lambda seeds, folder, sweeps, runs: [RunFolder(folder / str(n)) for n in range(sweeps * runs)],
    )
    return found


def test_a_further_run_costs_what_it_adds(copied, tmp_path):
    alone, over_import, further = copying.copying(tmp_path / "copying", times=2)
    assert alone.measured.mean == pytest.approx(IMPORT_S + RUN_S)
    assert over_import.measured.mean == pytest.approx((IMPORT_S + RUN_S) / IMPORT_S)
    assert further.measured.mean == pytest.approx(RUN_S)
    assert over_import.broken
    assert not further.broken


def test_every_run_is_copied_once(copied, tmp_path):
    copying.copying(tmp_path / "copying", times=2)
    assert [len(names) for names in copied] == [1, copying.RUNS] * 3
    names = [name for together in copied for name in together]
    assert len(set(names)) == len(names)
