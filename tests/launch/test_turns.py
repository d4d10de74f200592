"""Runs that yield between their repeats, and what a later driver keeps of an attempt that was interrupted."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Callable
from itertools import pairwise

import pytest

from llmexp.launch.attempt import only_attempt
from llmexp.launch.interrupt import Waited
from llmexp.launch.run import RunInTurns, take_turns
from llmexp.launch.turns import standing
from llmexp.record.folder import RunFolder
from llmexp.record.reading import read_json_lines
from llmexp.record.result import RunResult, RunStatus, seconds_between
from llmexp.training.plan.training_plan import TrainingPlan

WAITED = "its sweep was interrupted while it waited for its next repeat"


def ended(turns: RunInTurns) -> RunResult:
    """Let a run take the turns that are left."""
    while True:
        try:
            next(turns)
        except StopIteration as stop:
            return stop.value


@pytest.fixture
def interrupted(make_plan, folder) -> Callable[..., TrainingPlan]:
    """A run whose driver went after so many of its repeats: it wrote a result where it was asked to end."""

    def make(repeats_done: int, asked: bool = True) -> TrainingPlan:
        plan = make_plan("well", order="interleaved", repeats=3)
        with only_attempt(folder):
            turns = take_turns(plan, folder, "interleaved")
            for _ in range(repeats_done):
                next(turns)
            if asked:
                with pytest.raises(Waited):
                    turns.throw(Waited())
            else:  # what a killed driver leaves is what was there before
                killed = folder.path.with_name("killed")
                shutil.copytree(folder.path, killed)
        if not asked:
            turns.close()
            shutil.rmtree(folder.path)
            killed.rename(folder.path)
            shutil.rmtree(folder.drivers)
            _each_event(folder, process_started_at_s=1.0, start_ticks=1)
        return plan

    return make


def goes_on(plan: TrainingPlan, folder: RunFolder) -> RunResult:
    with only_attempt(folder):
        return ended(take_turns(plan, folder, "interleaved"))


def test_two_runs_take_turns_and_say_when(make_plan, folder):
    plan, other = make_plan("well", order="interleaved", repeats=2), RunFolder(folder.path.with_name("other"))
    with only_attempt(folder), only_attempt(other):
        one, two = take_turns(plan, folder, "interleaved"), take_turns(plan, other, "interleaved")
        next(one)
        assert (folder.state(), other.state()) == ("waiting", "planned")
        next(two)
        results = [ended(one), ended(two)]
    assert [result.status for result in results] == [RunStatus.SUCCESS] * 2, results
    assert [(turn.repeat, turn.driver) for turn in results[0].turns] == [(0, 0), (1, 0)]
    both = sorted((turn.began_at, turn.ended_at) for result in results for turn in result.turns)
    assert all(earlier[1] <= later[0] for earlier, later in pairwise(both))
    assert results[0].held_s == sum(turn.seconds for turn in results[0].turns)
    assert results[0].held_s < seconds_between(results[0].started_at, results[0].ended_at)


def test_between_its_repeats_nobody_samples_the_machine_for_it(make_plan, folder):
    with only_attempt(folder):
        turns = take_turns(make_plan("well", order="interleaved", repeats=2), folder, "interleaved")
        next(turns)
        samples = list(read_json_lines(folder.system_path))
        assert samples
        ended(turns)
    assert list(read_json_lines(folder.system_path))[: len(samples)] == samples


@pytest.mark.parametrize("asked", [True, False], ids=["asked to end", "killed"])
def test_whole_repeats_of_an_interrupted_sweep_are_kept_and_the_result_says_so(interrupted, folder, asked):
    plan = interrupted(2, asked)
    assert (folder.state(), folder.result() and folder.result().reason) == ("killed", WAITED if asked else None)
    before = [(path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.repeats()[:2]]
    result = goes_on(plan, folder)
    assert (result.status, result.repeats) == (RunStatus.SUCCESS, 3), result.reason
    assert [(path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.repeats()[:2]] == before
    assert [(turn.repeat, turn.driver) for turn in result.turns] == [(0, 0), (1, 0), (2, 1)]
    assert result.metrics["tokens_per_s"].n == 3
    moved = {path.name for path in folder.path.glob("previous/*/*")}
    assert "result.json" in moved or not asked
    assert not any(name.startswith(("repeat", "events", "system")) for name in moved)


def test_a_repeat_that_was_cut_short_is_measured_again(interrupted, folder):
    plan = interrupted(1, asked=False)
    folder.event("running", repeat=1)
    folder.repeat(1).mkdir()
    (folder.repeat(1) / "rank.0.json").touch()
    assert goes_on(plan, folder).repeats == 3
    assert (folder.path / "previous" / "1" / "repeat.1").exists()


def test_a_run_ends_by_itself_once_it_is_known_enough(make_plan, folder):
    plan = make_plan("well", order="interleaved", repeats=6, stop_at_interval_share=0.01)
    with only_attempt(folder):
        assert ended(take_turns(plan, folder, "interleaved")).repeats == 3


def _other_stack(folder: RunFolder) -> None:
    _each_event(folder, stack="another")


def _other_host(folder: RunFolder) -> None:
    _each_event(folder, host=f"not-{socket.gethostname()}")


def _begun_again(folder: RunFolder) -> None:
    folder.event("running", repeat=0)


def _no_samples(folder: RunFolder) -> None:
    (folder.repeat(0) / "samples.1.jsonl").unlink()


def _no_summary(folder: RunFolder) -> None:
    (folder.repeat(0) / "rank.1.json").unlink()


def _no_events(folder: RunFolder) -> None:
    folder.events_path.unlink()


def _each_event(folder: RunFolder, **changes: str | float) -> None:
    lines = [json.dumps(event | changes) + "\n" for event in folder.events()]
    folder.events_path.write_text("".join(lines))


@pytest.mark.parametrize("spoil", [_other_stack, _other_host, _begun_again, _no_samples, _no_summary, _no_events])
def test_repeats_of_another_stack_or_host_and_broken_ones_are_measured_again(interrupted, folder, spoil):
    plan = interrupted(1)
    assert len(standing(plan, folder)) == 1
    spoil(folder)
    assert standing(plan, folder) == []
    result = goes_on(plan, folder)
    assert [(turn.repeat, turn.driver) for turn in result.turns] == [(0, 0), (1, 0), (2, 0)]
    assert {"result.json", "repeat.0"} <= {path.name for path in folder.path.glob("previous/1/*")}


@pytest.mark.parametrize("status", [RunStatus.FAILED, RunStatus.SUCCESS, RunStatus.TIMEOUT])
def test_an_attempt_that_ended_by_itself_is_measured_from_the_start(interrupted, folder, status):
    plan = interrupted(1)
    folder.write(folder.result_path, folder.result().model_copy(update={"status": status}))
    assert standing(plan, folder) == []


def test_everything_is_measured_again_where_that_is_asked_for(interrupted, folder):
    plan = interrupted(1)
    again = plan.model_copy(update={"config": plan.config.model_copy(update={"rerun": "all"})})
    assert standing(again, folder) == []


def test_the_limit_of_time_counts_a_runs_own_turns(make_plan, folder, monkeypatch):
    """The clock jumps between two repeats, as it does while other runs have their turns."""
    with only_attempt(folder):
        turns = take_turns(make_plan("well", order="interleaved", repeats=2, timeout_s=30.0), folder, "interleaved")
        next(turns)
        monkeypatch.setattr("llmexp.launch.run.time.monotonic", lambda: 1e9)
        monkeypatch.setattr("llmexp.launch.watch.time.monotonic", lambda: 1e9)
        assert ended(turns).status is RunStatus.SUCCESS


def test_a_failing_repeat_ends_the_run_there(make_plan, folder):
    with only_attempt(folder):
        turns = take_turns(make_plan("well_then_broken", order="interleaved", repeats=3), folder, "interleaved")
        next(turns)
        result = ended(turns)
    assert (result.status, result.repeats, len(result.turns)) == (RunStatus.FAILED, 1, 2)


def test_the_time_of_a_run_that_never_ended_well_is_known(make_plan, folder):
    with only_attempt(folder):
        result = ended(take_turns(make_plan("out_of_memory", order="interleaved"), folder, "interleaved"))
    assert result.status is RunStatus.OOM
    assert result.held_s > 0
