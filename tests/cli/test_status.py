"""What `llmexp status` says of runs in every state."""

from __future__ import annotations

import re
from pathlib import Path

from llmexp.record.folder import RunFolder, find_runs
from llmexp.record.identity import process_identity
from llmexp.record.result import RunStatus

QUIET = ("model=tiny", "hardware=cpu", "tracking=none")


def lines(llmexp) -> list[list[str]]:
    code, out, err = llmexp("status")
    assert (code, err) == (0, "")
    return [re.split(r"  +", line) for line in out.splitlines()]


def lose_result(run: RunFolder) -> None:
    run.result_path.unlink()


def test_a_mixed_folder(llmexp, runner, here: Path):
    runner.endings = {"R": RunStatus.FAILED, "Q": RunStatus.SKIPPED}
    llmexp("method=Naive,F,R,Q,Z2,Z3", *QUIET)
    runs = {run.path.name.split("_")[1]: run for run in find_runs(here / "outputs")}
    for method in ("F", "Z2", "Z3"):
        lose_result(runs[method])
    runs["Z2"].event("running", **process_identity() | {"process_started_at_s": 0.0, "start_ticks": 0})
    runs["Z3"].event("running", **process_identity())
    at = {method: runs[method].events()[0]["at"] for method in ("Z2", "Z3")}
    header, *rows, counts, todo = lines(llmexp)
    assert header == ["run", "state", "repeats", "measured", "reason"]
    assert {row[0].split("_")[1]: row[1:] for row in rows} == {
        "F": ["planned", "0/1", "0/20"],
        "Naive": ["success", "0/1", "0/20"],
        "Q": ["skipped", "0/1", "0/20"],
        "R": ["failed", "0/1", "0/20"],
        "Z2": ["killed", "0/1", "0/20", f"the driver ended without writing a result; last event at {at['Z2']}"],
        "Z3": ["running", "0/1", "0/20", f"since {at['Z3']}"],
    }
    assert sorted(counts[0].partition(": ")[2].split(", ")) == [
        f"1 {state}" for state in ("failed", "killed", "planned", "running", "skipped", "success")
    ]
    assert todo == [
        "failed, killed, planned: the same command measures these runs and keeps the others; "
        "llmexp logs RUN shows what a run printed"
    ]


def test_what_has_its_answer_needs_nothing(llmexp, runner):
    llmexp("method=Naive", *QUIET)
    assert len(lines(llmexp)) == 2


def test_runs_typed_one_by_one_are_told_apart(llmexp, runner, here: Path):
    for word in ("engine=torch", "engine=deepspeed"):
        llmexp("method=Naive", word, "measure=smoke", *QUIET)
    header, *rows, _ = lines(llmexp)
    assert header == ["run", "state", "repeats", "measured", "asked for"]
    assert sorted(row[4] for row in rows) == ["engine=deepspeed", "engine=torch"]
    assert all(re.fullmatch(r"main/tiny_Naive_[0-9a-f]{12}", row[0]) for row in rows)
    llmexp("method=Naive", "engine=torch", "measure=smoke", *QUIET)
    assert len(find_runs(here / "outputs")) == 2


def test_a_run_that_cannot_be_read_hides_no_word_of_the_others(llmexp, runner, here: Path):
    llmexp("method=Naive", "engine=torch,deepspeed", "measure=smoke", *QUIET)
    llmexp("method=F", *QUIET)
    [lost] = here.glob("outputs/main/tiny_F_*/plan.json")
    lost.unlink()
    _, *rows, unreadable, _ = lines(llmexp)
    assert unreadable[1] == "unreadable"
    assert sorted(row[4] for row in rows) == ["engine=deepspeed", "engine=torch"]


def test_sweeps_are_told_apart_each_for_itself(llmexp, runner):
    for sweep, word in (("a", "engine=torch"), ("b", "engine=deepspeed")):
        llmexp("method=Naive,F", word, f"sweep.name={sweep}", *QUIET)
    assert lines(llmexp)[0] == ["run", "state", "repeats", "measured"]
