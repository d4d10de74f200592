"""The live picture of runs: bars, how runs ended, and the time left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llmexp.cli.watch import MOST_LINES, Line, Watch, _shown
from llmexp.record.folder import RunFolder, find_runs
from llmexp.record.identity import process_identity
from llmexp.record.result import RunStatus
from llmexp.record.sweep_order import ORDER

QUIET = ("model=tiny", "hardware=cpu", "tracking=none")


@pytest.fixture
def going_on(llmexp, runner, here: Path) -> RunFolder:
    """One of three runs, which has no result yet; the others have ended."""
    runner.endings = {"R": RunStatus.OOM}
    llmexp("method=Naive,F,R", *QUIET)
    (run,) = (run for run in find_runs(here / "outputs") if "_F_" in run.path.name)
    run.result_path.unlink()
    run.event("running", **process_identity())
    return run


def measured(run: RunFolder, steps: int) -> None:
    sample = {"warmup": False, "t_start_s": 0.0, "t_end_s": 0.1}
    run.repeat(0).mkdir(exist_ok=True)
    text = "".join(json.dumps(sample | {"index": step}) + "\n" for step in range(steps))
    (run.repeat(0) / "samples.0.jsonl").write_text(text)


def test_the_time_left_goes_by_the_pace_of_all_runs(going_on: RunFolder):
    clock = iter([0.0, 10.0])
    watched = Watch([going_on.sweep], lambda: next(clock))
    assert watched.headline(watched.look()) == "2 of 3 runs ended: 1 success, 1 oom"
    measured(going_on, 5)
    # A quarter of the run's 20 steps took 10 s.
    assert watched.headline(watched.look()) == "2 of 3 runs ended: 1 success, 1 oom · about 30 s left"


def test_runs_that_have_not_begun_are_seen(going_on: RunFolder):
    names = json.loads((going_on.sweep / ORDER).read_text())
    (going_on.sweep / ORDER).write_text(json.dumps([*names, "tiny_Z2_0123456789ab"]))
    lines = {line.name.rpartition("/")[2]: line for line in Watch([going_on.sweep]).look()}
    assert lines["tiny_Z2_0123456789ab"] == Line("main/tiny_Z2_0123456789ab", 0.0, "planned", "")
    assert len(lines) == 4


def test_it_ends_with_the_last_run(llmexp, going_on: RunFolder, monkeypatch):
    result = next(run for run in find_runs(going_on.sweep) if "_Naive_" in run.path.name).result_path.read_text()
    slept = []

    def end_the_run(seconds: float) -> None:
        slept.append(seconds)
        going_on.result_path.write_text(result)

    monkeypatch.setattr("llmexp.cli.watch.time.sleep", end_the_run)
    code, out, _ = llmexp("status", "--watch")
    assert code == 0
    assert len(slept) == 1
    assert "3 of 3 runs ended: 2 success, 1 oom" in out
    assert going_on.path.name in out


def test_of_many_runs_those_that_go_on_are_shown():
    ended = [Line(f"e{number}", 1.0, "success", "") for number in range(50)]
    later = [Line(f"p{number}", 0.0, "planned", "") for number in range(50)]
    shown = _shown([*ended, Line("now", 0.5, "running", ""), *later])
    assert len(shown) <= MOST_LINES
    assert "now" in [line.name for line in shown]
    assert "e49" in [line.name for line in shown]
