from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmexp.analysis.device_time import useful_fraction
from llmexp.errors import RecordError
from llmexp.record.folder import RunFolder
from llmexp.record.result import RunResult
from llmexp.record.samples import TrainingSummary
from llmexp.training.plan.training_plan import TrainingPlan

MINUTE = {"started_at": "2026-01-01T00:00:00.000+00:00", "ended_at": "2026-01-01T00:01:00.000+00:00"}


@pytest.fixture
def run_of(
    tmp_path: Path, tiny_plan: Callable[..., TrainingPlan], result_of: Callable[..., RunResult]
) -> Callable[..., RunFolder]:
    """A run of a minute with the measured windows of each repeat's ranks."""

    def run(name: str, status: str, *repeats: tuple[float, ...], **fields: Any) -> RunFolder:
        folder = RunFolder(tmp_path / name)
        for index, windows in enumerate(repeats):
            folder.repeat(index).mkdir(parents=True)
            for rank, window_s in enumerate(windows):
                folder.write(folder.repeat(index) / f"rank.{rank}.json", summary(rank, window_s))
        folder.write(folder.result_path, result_of(tiny_plan(), status, **MINUTE).model_copy(update=fields))
        return folder

    return run


def summary(rank: int, window_s: float) -> TrainingSummary:
    sizes = {"parameters": 1, "trainable_parameters": 1, "peak_rss_bytes": 1}
    return TrainingSummary(
        rank=rank, window_wall_s=window_s, time_to_first_step_s=1.0, state_bytes={}, what_ran={}, **sizes
    )


def useful(runs: list[RunFolder]) -> float | None:
    return useful_fraction((run, run.result()) for run in runs)


def test_the_slowest_rank_of_every_repeat_counts(run_of: Callable[..., RunFolder]) -> None:
    assert useful([run_of("a", "success", (10.0, 12.0), (18.0, 17.0))]) == pytest.approx(0.5)


def test_a_failed_run_held_its_devices_for_nothing(run_of: Callable[..., RunFolder]) -> None:
    runs = [run_of("a", "success", (30.0,)), run_of("b", "failed", (30.0,))]
    assert useful(runs) == pytest.approx(0.25)


def test_a_run_on_more_devices_weighs_more(run_of: Callable[..., RunFolder]) -> None:
    runs = [run_of("a", "success", (60.0,), devices=3), run_of("b", "success", (0.001,), devices=1)]
    assert useful(runs) == pytest.approx(0.75, abs=1e-3)


def test_there_is_none_before_a_run_has_ended(tmp_path: Path, run_of: Callable[..., RunFolder]) -> None:
    assert useful([RunFolder(tmp_path / "planned")]) is None
    assert useful([run_of("undated", "success", (1.0,), started_at="")]) is None


def test_a_broken_summary_is_said(run_of: Callable[..., RunFolder]) -> None:
    run = run_of("a", "success", (1.0,))
    (run.repeat(0) / "rank.0.json").write_text("{")
    with pytest.raises(RecordError, match="not a rank's summary"):
        useful([run])
