from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from patience import HANG_S

from benchmarks.folders import multiply
from llmexp.record.folder import find_runs
from llmexp.record.identity import identity_of, process_identity
from llmexp.record.index import INDEX, RunOverview, duration_key, overviews
from llmexp.record.plan import RunPlan
from llmexp.record.result import RunStatus

OPENED = """
import sys
from pathlib import Path
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
from llmexp.record.folder import find_runs
from llmexp.record.plan import RunPlan
from llmexp.record.index import overviews
found = overviews(find_runs(Path(sys.argv[1])))
print(len(found), sum("/outputs/" in path for path in opened))
"""


def _states(outputs: Path) -> list[str]:
    return [standing.state for standing in overviews(find_runs(outputs))]


def test_a_run_by_its_files(make_run):
    run = make_run("F", repeats=2, measure__steps=25, measure__repeats=2, measure__warmup_steps=5)
    [standing] = overviews([run])
    plan = RunPlan.read(run.plan_path)
    assert standing == RunOverview(
        state="success",
        id=run.result().id,
        words=[
            "batch={'micro': 2, 'accumulation': 1}",
            "measure.steps=25",
            "measure.repeats=2",
            "measure.warmup_steps=5",
        ],
        duration_key="tiny F pretrain deepspeed cpu fp32 adamw 2x1x1x1",
        repeats=0,
        planned_repeats=2,
        warmup_samples=5,
        samples=20,
        planned_samples=25,
        amount=4 * plan.config.data.seq_len,
        held_s=50.0,
        rate=7000.0,
    )
    assert duration_key(plan) == standing.duration_key


def test_runs_that_have_ended_are_not_opened_again(make_run, outputs: Path, tmp_path: Path):
    """300 runs cost as many opened files as there are sweeps."""
    multiply([make_run("F"), make_run("R", status="oom")], outputs, sweeps=3, runs=100)
    count = [sys.executable, "-c", OPENED, str(outputs)]
    first, second = (subprocess.run(count, capture_output=True, text=True, check=True).stdout.split() for _ in range(2))
    assert first[0] == second[0] == "302"
    assert int(first[1]) > 2 * 302
    assert int(second[1]) == 4  # one index a sweep


def test_the_index_gives_what_the_folders_give(make_run, outputs: Path):
    for status in ("success", "failed", "oom"):
        make_run("F", status, sweep={"name": status, "outputs": "outputs"})
    runs = find_runs(outputs)
    anew, from_index = overviews(runs), overviews(list(reversed(runs)))
    assert from_index == list(reversed(anew))
    assert [standing.state for standing in anew] == ["failed", "oom", "success"]
    assert anew[0].reason == "made to end as failed"


def test_a_run_measured_again_is_read_again(make_run, outputs: Path):
    run = make_run(status="failed")
    assert _states(outputs) == ["failed"]
    run.write(run.result_path, run.result().model_copy(update={"status": RunStatus.KILLED}))
    assert _states(outputs) == ["killed"]
    run.result_path.unlink()
    run.event("running", **process_identity())
    assert _states(outputs) == ["running"]


def test_a_running_run_is_looked_at_every_time(make_run, outputs: Path):
    run = make_run(status=None)
    driver = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    run.event("running", **identity_of(driver.pid))
    assert _states(outputs) == ["running"]
    driver.communicate(b"\n")
    assert _states(outputs) == ["killed"]


@pytest.mark.parametrize(
    "broken", ["", "{", "[]", '{"version": 0, "runs": {}}', '{"version": 1, "runs": {"x": [[1], {"color": "red"}]}}']
)
def test_a_broken_index_is_made_again(make_run, outputs: Path, broken: str):
    run = make_run()
    _states(outputs)
    index = run.path.parent / INDEX
    whole = index.read_text()
    index.write_text(broken)
    assert _states(outputs) == ["success"]
    assert index.read_text() == whole
    index.unlink()
    assert _states(outputs) == ["success"]
    assert index.read_text() == whole


def test_a_folder_that_cannot_be_written_to_is_listed(make_run, outputs: Path, monkeypatch):
    run = make_run()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert _states(outputs) == ["success"]
    assert not list(run.path.parent.glob(".*"))


def test_runs_that_are_gone_leave_the_index(make_run, outputs: Path):
    gone, stays = make_run("F"), make_run("R")
    _states(outputs)
    gone.path.rename(outputs / "elsewhere")
    stays.write(stays.result_path, stays.result())
    overviews([stays])
    assert list(json.loads((stays.path.parent / INDEX).read_text())["runs"]) == [stays.path.name]


def test_listing_part_of_a_sweep_forgets_none_of_the_rest(make_run, outputs: Path):
    first, second = make_run("F"), make_run("R")
    _states(outputs)
    second.write(second.result_path, second.result())
    overviews([second])
    assert set(json.loads((first.path.parent / INDEX).read_text())["runs"]) == {first.path.name, second.path.name}


@pytest.mark.parametrize("broken", ["plan.json", "result.json", "events.jsonl"])
def test_what_cannot_be_read_is_said_every_time_until_it_can(make_run, outputs: Path, broken: str):
    run = make_run(status="success" if broken == "result.json" else None)
    whole = (run.path / broken).read_text() if (run.path / broken).exists() else ""
    (run.path / broken).write_text("{}\n")
    assert _states(outputs) == _states(outputs) == ["unreadable"]
    (run.path / broken).write_text(whole)
    assert "unreadable" not in _states(outputs)


def test_many_at_once_leave_a_whole_index(make_run, outputs: Path):
    multiply([make_run()], outputs, sweeps=1, runs=30)
    listings = [
        subprocess.Popen(
            [sys.executable, "-c", OPENED, str(outputs)], stdout=subprocess.PIPE, text=True, env=os.environ
        )
        for _ in range(4)
    ]
    assert [listing.communicate(timeout=HANG_S)[0].split()[0] for listing in listings] == ["31"] * 4
    assert len(json.loads((outputs / "sweep000" / INDEX).read_text())["runs"]) == 30
    assert not list((outputs / "sweep000").glob(f".{INDEX}*"))
