"""Sweeps whose repeats are interleaved: whose turn it is, and what errors, other drivers and Ctrl-C do."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from types import SimpleNamespace

import pytest

from chaos.surroundings import Surroundings
from llmexp.launch.attempt import only_attempt
from llmexp.launch.interrupt import Waited
from llmexp.launch.stack import stack_digest
from llmexp.record.folder import RunFolder, find_runs
from llmexp.record.result import RunResult, RunStatus
from llmexp.sweep.measuring import records_named
from llmexp.training.plan.training_plan import TrainingPlan

QUIET = ("tracking=none", "model=tiny", "hardware=cpu")
Driver = subprocess.Popen[str]
INTERLEAVED = ("measure.order=interleaved", "measure.repeats=3")


@dataclass
class Turns:
    """Stands for llmexp.launch.run.take_turns: notes whose repeat it was, and ends runs as told, by method."""

    result_of: Callable[..., RunResult]
    endings: dict[str, RunStatus | BaseException] = field(default_factory=dict)
    repeats: dict[str, int] = field(default_factory=dict)
    """The repeat in which a run ends, from 1; else the last one."""
    took: list[str] = field(default_factory=list)
    waited: list[str] = field(default_factory=list)
    largest_micro: int = 10**6

    def __call__(self, plan: TrainingPlan, folder: RunFolder, order: str) -> Generator[None, None, None]:
        assert order == "interleaved"
        folder.write(folder.plan_path, plan)
        ending = self.endings.get(plan.method, RunStatus.SUCCESS)
        if plan.skip or plan.batch.micro > self.largest_micro:
            ending = RunStatus.SKIPPED if plan.skip else RunStatus.OOM
        last = 1 if plan.skip or ending is RunStatus.OOM else self.repeats.get(plan.method, plan.config.measure.repeats)
        try:
            for repeat in range(last):
                if repeat:
                    yield
                if not plan.skip:
                    self.took.append(plan.name.removeprefix("tiny "))
            if isinstance(ending, BaseException):
                raise ending
        except Waited:
            self.waited.append(plan.method)
            raise
        result = self.result_of(plan, ending, stack=stack_digest(plan), reason=str(plan.skip or ""))
        folder.write(folder.result_path, result)


@pytest.fixture
def turns(result_of, monkeypatch) -> Turns:
    fake = Turns(result_of)
    monkeypatch.setattr("llmexp.launch.run.take_turns", fake)
    monkeypatch.setattr("llmexp.sweep.pilot.LEAST_STARTS", inf)
    return fake


def test_rounds_take_a_repeat_of_every_run_there_and_back(llmexp, turns):
    code, _, err = llmexp("method=Naive,F,R", *INTERLEAVED, *QUIET)
    assert code == 0
    assert turns.took == ["Naive", "F", "R", "R", "F", "Naive", "Naive", "F", "R"]
    assert [line for line in err.splitlines() if line.startswith("round")] == [
        "round 1 | a repeat of each of 3 runs, in the sweep's order",
        "round 2 | a repeat of each of 3 runs, from the last to the first",
        "round 3 | a repeat of each of 3 runs, in the sweep's order",
    ]


def test_repeats_stay_together_unless_it_is_asked_for(llmexp, turns, runner):
    assert llmexp("method=Naive,F", "measure.repeats=2", *QUIET)[0] == 0
    assert (runner.ran, turns.took) == (["tiny Naive", "tiny F"], [])
    llmexp("method=Naive,F", "measure.repeats=2", "measure.order=run_by_run,interleaved", *QUIET)
    assert [name.partition(" ")[0] for name in turns.took] == ["Naive", "F", "F", "Naive"]
    assert runner.ran == ["tiny Naive", "tiny F"]


@pytest.mark.parametrize(
    ("ending", "state"),
    [
        (RunStatus.OOM, "oom"),
        (RunStatus.FAILED, "failed"),
        (ZeroDivisionError("driver's defect"), "planned"),
        (OSError(28, "No space left on device"), "planned"),
    ],
    ids=["out of memory", "failed", "defect", "disk"],
)
def test_a_run_that_ends_early_has_no_further_turn_and_stops_no_other(llmexp, turns, here: Path, ending, state):
    turns.endings, turns.repeats = {"F": ending}, {"F": 1}
    code, _, err = llmexp("method=Naive,F,R", *INTERLEAVED, *QUIET)
    assert code == (0 if state == "oom" else 1)
    assert turns.took == ["Naive", "F", "R", "R", "Naive", "Naive", "R"]
    states = {folder.path.name.split("_")[1]: folder.state() for folder in find_runs(here / "outputs")}
    assert states == {"Naive": "success", "F": state, "R": "success"}
    assert ("Traceback" in err) == isinstance(ending, ZeroDivisionError)
    assert "the same command resumes it" in err or not isinstance(ending, OSError)


def test_what_is_known_enough_leaves_the_rounds_to_the_others(llmexp, turns):
    turns.repeats = {"Naive": 2}
    llmexp("method=Naive,F", *INTERLEAVED, *QUIET)
    assert turns.took == ["Naive", "F", "F", "Naive", "F"]


def test_a_batch_larger_than_one_that_ran_out_of_memory_in_this_round_is_not_tried(llmexp, turns):
    turns.largest_micro = 2
    assert llmexp("method=F", "batch.micro=2,4,8", *INTERLEAVED, *QUIET)[0] == 0
    assert turns.took == ["F batch.micro=2", "F batch.micro=4", "F batch.micro=2", "F batch.micro=2"]


def test_answers_are_kept(llmexp, turns):
    llmexp("method=Naive,R", *INTERLEAVED, *QUIET)
    turns.took.clear()
    code, out, _ = llmexp("method=Naive,F,R", *INTERLEAVED, *QUIET)
    assert (code, turns.took) == (0, ["F", "F", "F"])
    assert out.count("success already") == 2


def test_a_run_that_another_driver_holds_is_taken_once_it_is_free(llmexp, turns, here: Path, monkeypatch):
    llmexp("method=F", *INTERLEAVED, *QUIET)
    (folder,) = find_runs(here / "outputs")
    folder.result_path.unlink()
    turns.took.clear()
    other = only_attempt(folder)
    other.__enter__()
    # the module's clock, and not the sleep of every thread: a wait for a process sleeps as well
    clock = SimpleNamespace(sleep=lambda seconds: other.__exit__(None, None, None))
    monkeypatch.setattr("llmexp.sweep.share.time", clock)
    code, out, _ = llmexp("method=Naive,F,R", *INTERLEAVED, *QUIET)
    assert code == 0
    assert turns.took == ["Naive", "R", "R", "Naive", "Naive", "R", "F", "F", "F"]
    assert "another llmexp is measuring this run" in out


def test_ctrl_c_ends_the_sweep_and_tells_the_runs_that_wait(llmexp, turns, here: Path):
    turns.endings, turns.repeats = {"R": KeyboardInterrupt()}, {"R": 2}
    code, _, err = llmexp("method=Naive,F,R", *INTERLEAVED, *QUIET)
    assert (code, turns.took) == (130, ["Naive", "F", "R", "R"])
    assert turns.waited == ["Naive", "F"]
    assert err.splitlines()[-1] == "llmexp: interrupted; the same command resumes with what is missing"
    for folder in find_runs(here / "outputs"):
        with only_attempt(folder):  # nobody holds it any more
            pass


def test_an_interrupt_whose_result_cannot_be_written_still_ends_the_sweep(tmp_path: Path):
    def interrupted() -> None:
        try:
            raise KeyboardInterrupt
        finally:
            (tmp_path / "gone" / "result.json").write_text("")

    with pytest.raises(KeyboardInterrupt), records_named(RunFolder(tmp_path)):
        interrupted()


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("hardware.nodes=2", "hardware.nodes=2, and a run on several machines holds them for all its repeats"),
        ("hydra/launcher=basic", "hydra/launcher=BasicLauncher gives each run its own driver"),
    ],
)
def test_where_no_turns_can_be_taken_is_one_line_before_anything_starts(llmexp, turns, here: Path, word, why):
    code, out, err = llmexp("method=Naive,F", word, *INTERLEAVED, *QUIET)
    assert (code, out, list(here.iterdir())) == (2, "", [])
    assert f"measure.order=interleaved: {why}" in err
    assert err.count("\n") == 1


@pytest.fixture
def surroundings(tmp_path: Path) -> Surroundings:
    return Surroundings(tmp_path, tmp_path / "outputs")


@pytest.fixture
def start(surroundings: Surroundings) -> Iterator[Callable[[], Driver]]:
    """Start a real driver whose ranks are quick and need no torch."""
    started: list[Driver] = []

    def start() -> Driver:
        quick = ("engine=scripted", "measure=smoke", "measure.steps=40", "measure.profile=false", *INTERLEAVED)
        command = surroundings.llmexp("method=Naive,F", *QUIET, *quick, f"sweep.outputs={surroundings.outputs}")
        environment, text = surroundings.environment, {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        started.append(subprocess.Popen(command, env=environment, text=True, **text))
        return started[-1]

    yield start
    for driver in started:
        if driver.poll() is None:
            driver.kill()
            driver.communicate()


@pytest.mark.slow
@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.sweep), signal.SIGINT]
)
def test_a_killed_sweep_goes_on_with_the_repeats_that_are_missing(
    surroundings: Surroundings, start: Callable[[], Driver], number: signal.Signals
) -> None:
    first = start()
    assert first.stdout
    assert any("repeat 3/3" in line for line in first.stdout), "the last round did not begin"
    first.send_signal(number)
    first.communicate()
    states = {folder.path.name.split("_")[1]: folder.state() for folder in find_runs(surroundings.outputs)}
    assert states == {"Naive": "killed", "F": "killed"}
    second = start()
    said, _ = second.communicate()
    assert second.returncode == 0, said
    results = [folder.result() for folder in find_runs(surroundings.outputs)]
    assert [(result.status, result.repeats) for result in results] == [(RunStatus.SUCCESS, 3)] * 2
    assert [[turn.driver for turn in result.turns] for result in results] == [[0, 0, 1]] * 2
    assert "its sweep was interrupted and went on later: " in said, said
