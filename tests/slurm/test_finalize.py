from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from llmexp.launch.attempt import only_attempt
from llmexp.record.folder import RunFolder
from llmexp.slurm.finalize import finalize, finalize_ended, is_final
from llmexp.slurm.jobs import Submitted, slurm_folder
from llmexp.slurm.queue import JobState, QueuedJob


@pytest.fixture
def submitted(tmp_path: Path, tiny_plan) -> Submitted:
    """A run whose job is 7_1, which has not begun."""
    folder = RunFolder(tmp_path / "outputs" / "main" / "tiny_F_0123456789ab")
    folder.write(folder.plan_path, tiny_plan("F"))
    slurm_folder(folder.path.parent).mkdir()
    return Submitted(folder, QueuedJob("7_1", "llmexp-main-1"), "")


@pytest.fixture
def end(submitted: Submitted, tiny_plan, result_of) -> Callable[..., None]:
    """Let the run itself end, as its job does."""

    def write(status: str, ended_at: str = "now") -> None:
        submitted.folder.write(submitted.folder.result_path, result_of(tiny_plan("F"), status, ended_at=ended_at))

    return write


@pytest.mark.parametrize(
    ("state", "status", "reason"),
    [
        (JobState("CANCELLED", "None"), "killed", "SLURM's job 7_1 ended CANCELLED before the run began"),
        (JobState("NODE_FAIL", "None", "n1"), "killed", "SLURM's job 7_1 ended NODE_FAIL on n1 before the run began"),
        (
            JobState("OUT_OF_MEMORY", "None", "n1"),
            "oom",
            "SLURM's job 7_1 ended OUT_OF_MEMORY on n1 before the run began",
        ),
        (JobState("TIMEOUT", "None", "n1"), "timeout", "SLURM's job 7_1 ended TIMEOUT on n1 before the run began"),
        (
            JobState("forgotten"),
            "killed",
            "SLURM's job 7_1 is gone, SLURM has no record of how it ended, and it left no result",
        ),
        (JobState("PENDING", "BadConstraints"), "killed", "SLURM's job 7_1 would wait forever: BadConstraints"),
    ],
)
def test_a_job_that_left_no_result_gets_one(submitted, state, status, reason):
    result = finalize(submitted, state)
    assert (result.status, result.reason) == (status, reason)
    assert submitted.folder.result() == result
    assert submitted.folder.state() == status


def test_a_failed_jobs_last_words_are_in_the_reason(submitted):
    submitted.folder.event("running")
    submitted.log.parent.mkdir(parents=True)
    submitted.log.write_text("much\nsrun: error: the end\n")
    assert (
        finalize(submitted, JobState("FAILED", "None", "n1")).reason
        == "SLURM's job 7_1 ended FAILED on n1: srun: error: the end"
    )


def test_the_runs_own_result_is_never_written_over(submitted, end):
    end("success")
    finalize(submitted, JobState("NODE_FAIL"))
    assert submitted.folder.result().status == "success"


def test_a_run_that_goes_on_is_left_alone(submitted):
    with only_attempt(submitted.folder):
        assert not finalize_ended(submitted, JobState("NODE_FAIL"))
    assert submitted.folder.result() is None


@pytest.mark.parametrize(
    ("status", "state", "final"),
    [
        ("success", None, True),
        ("oom", JobState("RUNNING"), True),
        ("killed", JobState("PENDING", "BeginTime"), False),
        ("failed", JobState("RUNNING"), False),
        ("failed", None, False),
        ("failed", JobState("FAILED"), True),
        ("killed", JobState("forgotten"), True),
    ],
)
def test_only_an_answer_stands_while_slurm_may_run_the_job_again(submitted, end, status, state, final):
    end(status)
    assert is_final(submitted, state) is final


def test_an_earlier_result_is_not_the_jobs(submitted, end):
    end("success", ended_at="yesterday")
    repeated = Submitted(submitted.folder, QueuedJob("8", "llmexp-main-2"), "yesterday")
    assert not is_final(repeated, JobState("CANCELLED"))
    assert finalize(repeated, JobState("CANCELLED")) is None
    assert submitted.folder.result().status == "success"
