from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from llmexp.record.folder import RunFolder, find_runs
from llmexp.record.result import Batch, RunResult, RunStatus
from llmexp.sweep.resume import is_anothers, why_again
from llmexp.training.plan.training_plan import TrainingPlan


class Plan:
    """Of a run that starts from no other, and from which none starts."""

    awaited = False

    def __init__(self, rerun: str, force: bool) -> None:
        self.config = SimpleNamespace(rerun=rerun, force=force, starts_from=None)


def again(rerun: str, status: RunStatus, stack: str = "now", force: bool = False) -> str | None:
    fields = dict.fromkeys(("id", "task", "engine", "model", "method", "hardware", "sweep", "command"), "x")
    earlier = RunResult(
        **fields,
        stack="now",
        status=status,
        processes=1,
        devices=1,
        batch=Batch(micro=1, accumulation=1, global_=1),
        seq_len=2,
    )
    return why_again(Plan(rerun, force), RunFolder("nowhere"), earlier, stack)  # type: ignore[arg-type]


@pytest.mark.parametrize("status", RunStatus)
def test_by_status(status):
    assert again("none", status) is None
    assert again("all", status) == "rerun=all"
    for rerun in ("failed", "stale"):
        assert bool(again(rerun, status)) is not status.is_answer


@pytest.mark.parametrize(("ended_at", "anothers"), [("2026-01-02", True), ("2025-12-31", False), ("2999-01-01", False)])
def test_only_what_ended_since_the_sweep_began_and_by_now_is_another_drivers(ended_at: str, anothers: bool):
    fields = dict.fromkeys(("id", "task", "engine", "model", "method", "hardware", "sweep", "command"), "x")
    times = {"ended_at": f"{ended_at}T00:00:00.000+00:00", "status": RunStatus.FAILED}
    earlier = RunResult(
        **fields,
        **times,
        stack="now",
        processes=1,
        devices=1,
        batch=Batch(micro=1, accumulation=1, global_=1),
        seq_len=2,
    )
    assert is_anothers(earlier, "2026-01-01T00:00:00.000+00:00") is anothers


def test_another_stack_makes_a_result_stale():
    assert "changed" in str(again("stale", RunStatus.OOM, stack="later"))
    assert again("failed", RunStatus.OOM, stack="later") is None
    assert again("none", RunStatus.OOM, stack="later") is None


def test_force_starts_what_was_skipped_only():
    assert "force" in str(again("failed", RunStatus.SKIPPED, force=True))
    assert again("failed", RunStatus.SUCCESS, force=True) is None


WORDS = ("method=F", "model=tiny", "hardware=cpu", "tracking=none")


@pytest.fixture
def run(llmexp, runner, here: Path, write_samples) -> RunFolder:
    """A success with the samples of its two ranks."""
    llmexp(*WORDS)
    [run] = find_runs(here / "outputs")
    for rank in range(2):
        write_samples(run.repeat(0), rank, [(0.5, 2.0)])
    run.write(run.result_path, run.result().model_copy(update={"repeats": 1}))
    runner.ran.clear()
    return run


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_text(path.read_text()[:100])])
def test_a_lost_plan_is_written_again_beside_its_result(damage, run, llmexp, runner):
    whole = run.plan_path.read_text()
    damage(run.plan_path)
    mended = "the same command writes it again: python -m llmexp method=F model=tiny hardware=cpu tracking=none"
    for command in ("status", "report"):
        [line] = [line for line in llmexp(command)[1].splitlines() if "plan.json" in line]
        assert line.endswith(mended)
    code, out, err = llmexp(*WORDS)
    assert (code, runner.ran, err) == (0, [], "")
    assert "success already, " in out
    assert "; its plan.json was missing and was written again\n" in out
    assert run.plan_path.read_text() == whole
    assert "lost" not in llmexp(*WORDS)[1]
    assert " success " in llmexp("status")[1]


def test_a_plan_written_again_has_the_command_and_the_skip_of_its_result(run, llmexp, runner):
    run.plan_path.unlink()
    skipped = {"command": "python -m llmexp earlier", "status": RunStatus.SKIPPED, "reason": "out of memory already"}
    run.write(run.result_path, run.result().model_copy(update=skipped))
    llmexp(*WORDS)
    plan = TrainingPlan.read(run.plan_path)
    assert (runner.ran, plan.rerun_command, str(plan.skip)) == ([], skipped["command"], skipped["reason"])


def test_a_plan_of_another_version_is_left_alone(run, llmexp):
    run.plan_path.write_text('{"color": "red", "written_by": "9.1"}')
    llmexp(*WORDS)
    assert "red" in run.plan_path.read_text()


def test_a_lost_plan_without_a_result_is_a_first_time(run, llmexp, runner):
    run.plan_path.write_text("")
    run.result_path.unlink()
    assert "plan.json is not a plan, it is damaged: " in llmexp("status")[1]
    assert llmexp(*WORDS)[0] == 0
    assert runner.ran == ["tiny F"]


def test_a_damaged_result_is_measured_again(run, llmexp, runner):
    run.result_path.write_text(run.result_path.read_text()[:100])
    mended = (
        "the same command measures the run again: python -m llmexp method=F model=tiny hardware=cpu tracking=none\n"
    )
    for command in ("status", "report"):
        assert mended in llmexp(command)[1]
    code, out, _ = llmexp(*WORDS)
    assert (code, runner.ran) == (0, ["tiny F"])
    assert f"{run.path.name}: again, its result.json is damaged\n" in out


@pytest.mark.parametrize("lost", ["repeat.0", "repeat.0/samples.1.jsonl"])
def test_a_success_without_its_samples_is_measured_again(lost, run, llmexp, runner):
    assert "missing" not in llmexp("status")[1]
    path = run.path / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    for command in ("status", "report"):
        assert ".jsonl is missing: the same command measures the run again\n" in llmexp(command)[1]
    assert llmexp(*WORDS, "rerun=none")[0] == 0
    assert runner.ran == []
    _, out, _ = llmexp(*WORDS)
    assert runner.ran == ["tiny F"]
    assert f"{run.path.name}: again, its repeat.0/samples." in out
