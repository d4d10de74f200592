"""What `llmexp calibrate` measures, prints and leaves, and what `--show` lists."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmexp.record.calibration_file import CALIBRATION
from llmexp.record.folder import RunFolder, find_runs
from llmexp.record.plan import RunPlan
from llmexp.record.predicted import Prediction
from llmexp.record.result import Metric, RunResult

WORDS = ("hardware=h100", "tracking=none")
# A run at this share of the predicted speed, by method.
SHARES = {"F": 0.8, "F+Z3": 0.5, "F+Z2+O": 1.6}


@pytest.fixture
def measured(runner, result_of: Callable[..., RunResult]):
    """Let every run reach its method's share of the speed that was predicted without any calibration."""

    def result(plan: Any, status: str, **fields: Any) -> RunResult:
        predicted = plan.predicted
        rate = (predicted.uncalibrated or predicted.rate) * SHARES.get(plan.method, 1.0) if predicted else 1.0
        known = {"metrics": {"tokens_per_s": Metric(mean=rate)}} if hasattr(plan, "method") else {}
        known |= {
            "environment": {"gpus": {"driver_version": "1", "devices": [{"name": "unknown"}]}},
            "ended_at": "2026-01-02T03:04:05+00:00",
        }
        return result_of(plan, status, **known | fields)

    runner.result_of = result
    return runner


def prediction(run: RunFolder) -> Prediction:
    found = RunPlan.read(run.plan_path).predicted
    assert found is not None
    return found


def test_three_runs_are_shown_measured_and_then_correct_the_next_plans(llmexp, measured, here: Path) -> None:
    before = llmexp("plan", *WORDS, "model=1b", "method=Z3")[1]
    code, out, _ = llmexp("calibrate", *WORDS)
    assert code == 0
    assert measured.ran == ["1b F batch.micro=8", "1b F+Z3 batch.micro=1", "1b F+Z2+O batch.micro=1"]
    shown = (
        out.index("F+Z3: bound by links"),
        out.index("predicted  "),
        out.index("h100 (unknown), deepspeed, by 3 runs"),
    )
    assert list(shown) == sorted(shown)
    row = next(line for line in out.splitlines() if line.startswith("calibration/1b_F+Z3_"))
    off, calibrated, others = (int(cell.rstrip("%")) for cell in row.split()[-3:])
    assert off == -50
    assert abs(calibrated) < 30 < abs(others)
    after = llmexp("plan", *WORDS, "model=1b", "method=Z3")[1]
    assert "calibrated by 3 runs here" in after
    assert "calibrated" not in before
    assert len(find_runs(here / "outputs" / "calibration")) == 3


def test_a_second_time_it_keeps_its_runs_and_says_the_same(llmexp, measured) -> None:
    first = llmexp("calibrate", *WORDS)[1].splitlines()[-6:]
    again = llmexp("calibrate", *WORDS)[1].splitlines()[-6:]
    assert len(measured.ran) == 3
    assert again == first


def test_runs_of_before_count_too_where_the_file_is_lost(llmexp, measured, here: Path) -> None:
    llmexp("model=1b", "method=Z2", *WORDS)
    (here / "outputs" / CALIBRATION).unlink()
    out = llmexp("calibrate", *WORDS)[1]
    assert "h100 (unknown), deepspeed, by 4 runs" in out


def test_one_device_has_no_run_that_links_bind(llmexp, measured) -> None:
    llmexp("calibrate", *WORDS, "model=tiny", "hardware.devices_per_node=1")
    assert measured.ran == ["tiny F batch.micro=8", "tiny F+Z2+O batch.micro=1"]


def test_a_processor_is_measured_first(llmexp, measured) -> None:
    code, out, _ = llmexp("calibrate", "hardware=cpu", "hardware.devices_per_node=2", "tracking=none", "model=tiny")
    assert code == 0
    assert measured.ran[0].startswith("micro")
    assert len(measured.ran) == 4
    assert "first what predictions go by here: llmexp task=micro hardware=cpu micro.ranks=2" in out
    assert out.splitlines()[-1].startswith("not calibrated: none of these runs ended well and is predicted")


@pytest.mark.parametrize("word", ["method=F", "experiment=first_run", "sweep.name=mine", "task=serve"])
def test_what_it_chooses_itself_is_refused_in_one_line(llmexp, measured, word: str) -> None:
    code, _, err = llmexp("calibrate", *WORDS, word)
    assert code == 2
    (line,) = err.splitlines()
    assert f"{word.partition('=')[0]} does not go with llmexp calibrate" in line
    assert measured.ran == []


def test_errors_are_listed_by_date_with_those_outside_of_their_interval(llmexp, measured) -> None:
    llmexp("calibrate", *WORDS)
    code, out, _ = llmexp("calibrate", "--show")
    assert code == 0
    rows = [line for line in out.splitlines() if line.startswith("2026-01-02 03:04")]
    assert len(rows) == 3
    assert next(row for row in rows if "1b F+Z3 " in row).split()[-2:] == ["0.50", "*"]
    assert next(row for row in rows if "1b F+Z2+O" in row).split()[-1] == "1.60"
    assert "median error: 60.0% over 3 runs" in out
    assert out.splitlines()[-1] == "h100, deepspeed: drift unknown: 1 sweep by day, and it takes 8"


def test_a_drift_is_told(llmexp, measured, here: Path) -> None:
    for day in range(1, 13):
        SHARES["Naive"] = 0.7 if day > 8 else 1.0
        llmexp("model=1b", "method=Naive", *WORDS, f"sweep.name=day{day}", f"seed={day}", f"sweep.outputs=outputs{day}")
        run = find_runs(here / f"outputs{day}")[0]
        text = run.result_path.read_text()
        run.result_path.write_text(text.replace("2026-01-02T", f"2026-01-{day:02}T"))
    out = llmexp("calibrate", "--show", *(f"outputs{day}" for day in range(1, 13)))[1]
    assert "h100, deepspeed: DRIFT: measured over predicted x 0.70 in the newest 4 sweeps by day" in out


def test_runs_without_a_prediction_are_not_listed(llmexp, measured) -> None:
    llmexp("model=tiny", "method=Naive", "tracking=none", "hardware=cpu", "sweep.outputs=outputs")
    out = llmexp("calibrate", "--show")[1]
    assert out.splitlines() == ["no run here was predicted before it was measured: llmexp calibrate measures some"]


def test_the_plan_keeps_what_was_predicted_before_it_ran(llmexp, measured, here: Path) -> None:
    llmexp("calibrate", *WORDS)
    llmexp("model=1b", "method=Z3", *WORDS)
    (run,) = find_runs(here / "outputs" / "main")
    kept = prediction(run)
    assert kept.calibrated_by == 3
    assert kept.uncalibrated is not None
    assert kept.uncalibrated > 1.2 * kept.rate
    assert kept.multipliers["communication"] > 1.5
