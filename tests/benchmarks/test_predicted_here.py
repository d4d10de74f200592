"""Tiny runs on this processor are measured once, and judged by the constants that llmexp carries."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_on_cpu import RATES

from benchmarks.prediction import here
from benchmarks.prediction.here import here_figures, measured
from benchmarks.prediction.on_cpu import Truth
from llmexp.training.predict.cpu_step import constants, cpu_step
from tests.planning import make_plan


def run(method: str, slower: float) -> Truth:
    words = ("model=tiny", "hardware=cpu", "hardware.devices_per_node=1", "precision=bf16_mixed", f"method={method}")
    plan = make_plan(*words)
    return Truth(plan, RATES, (slower * cpu_step(plan, RATES, constants(), {}).whole,))


@pytest.mark.parametrize(("slower", "verdicts"), [(1.02, ["kept", "kept"]), (2.0, ["BROKEN", "BROKEN"])])
def test_errors_and_intervals_are_those_of_carried_constants(
    slower: float, verdicts: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runs = [run(method, slower) for method in ("Naive", "F", "R")]
    monkeypatch.setattr(here, "measured", lambda _: runs)
    middle, holds = here_figures(tmp_path)
    assert middle.measured.mean == pytest.approx(100 * (1 - 1 / slower))
    assert holds.measured.mean == 100 * (verdicts[1] == "kept")
    assert [middle.verdict, holds.verdict] == verdicts


def test_a_folder_that_is_there_is_not_measured_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(here, "measure", lambda *_, **__: pytest.fail("it measures"))
    assert measured(tmp_path) == []
