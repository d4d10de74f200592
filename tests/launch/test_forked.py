"""Ranks that are forked: a real engine's ranks, and what happens when a process goes.

A rank, the driver or the server goes while ranks hang in a collective.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from patience import until
from planning import make_plan as plan_words

from llmexp.launch.forked import ForkedAgent, close_server
from llmexp.launch.ranks import LOOPBACK, listening
from llmexp.launch.run import run_one
from llmexp.record.folder import RunFolder
from llmexp.record.plan import Command
from llmexp.record.result import RunStatus
from llmexp.record.samples import StepSample, read_samples

pytestmark = pytest.mark.ranks
SCRIPTS = Path(__file__).parent / "scripts"
REAL = (
    *(
        "hardware=cpu",
        "engine=torch",
        "engine.launcher=fork",
        "model.num_layers=1",
        "data=synthetic",
        "data.seq_len=32",
    ),
    *("measure=smoke", "measure.profile=false", "measure.threads_per_rank=1"),
)


@pytest.fixture(autouse=True)
def server(processes) -> Iterator[None]:
    """One of each test's own, which ends before its processes are looked for."""
    close_server()
    yield
    close_server()


@pytest.fixture
def make_forked_plan(make_plan):
    def make(behavior: str, **limits: float):
        plan = make_plan(**limits)
        engine = plan.config.engine.model_copy(update={"launcher": "fork"})
        argv = [sys.executable, "-m", "llmexp.launch.fork_server", "forked_worker", "2", "{port}", "{folder}"]
        command = Command(argv=argv, env={"PYTHONPATH": str(SCRIPTS), "BEHAVIOR": behavior})
        return plan.model_copy(update={"config": plan.config.model_copy(update={"engine": engine}), "command": command})

    return make


def losses(samples: Path) -> list[float]:
    found: list[StepSample] = list(read_samples(samples, StepSample))
    return [sample.loss for sample in found]


@pytest.mark.slow
def test_repeats_of_a_real_engine_are_forked_from_one_process_and_train_like_fresh_ones(tmp_path):
    forked = RunFolder(tmp_path / "main" / "forked")
    result = run_one(plan_words(*REAL, "measure.repeats=2"), forked)
    assert (result.status, result.repeats, result.what_ran["backend"]) == (RunStatus.SUCCESS, 2, "gloo"), result.reason
    fresh = RunFolder(tmp_path / "main" / "fresh")
    assert run_one(plan_words(*REAL, "engine.launcher=spawn"), fresh).status is RunStatus.SUCCESS
    expected = losses(fresh.repeat(0) / "samples.1.jsonl")
    assert len(expected) == 3
    for repeat in (0, 1):
        assert losses(forked.repeat(repeat) / "samples.1.jsonl") == pytest.approx(expected, abs=1e-6)


def test_ranks_have_what_their_server_imported_and_the_threads_of_the_plan(make_forked_plan, folder):
    run_one(make_forked_plan("out_of_memory", threads_per_rank=1), folder)
    assert ForkedAgent.server is not None
    # The time that they computed stays with it, or it would be taken for another program's.
    until(lambda: psutil.Process(ForkedAgent.server.process.pid).cpu_times().children_user > 0)
    assert f"imported by {ForkedAgent.server.process.pid}, 1 threads" in (folder.repeat(0) / "log.1.txt").read_text()


@pytest.mark.parametrize(
    ("behavior", "status", "reason"),
    [
        ("killed", RunStatus.KILLED, "rank 1 was killed by SIGKILL"),
        ("out_of_memory", RunStatus.OOM, "rank 1: MemoryError: no more"),
        (
            "abort",
            RunStatus.OOM,
            "rank 1: Fatal glibc error: failed to register TLS destructor: out of memory",
        ),
    ],
)
def test_one_ranks_end_ends_the_run_and_its_peers(make_forked_plan, folder, processes, behavior, status, reason):
    result = run_one(make_forked_plan(behavior), folder)
    assert (result.status, result.reason) == (status, reason)
    assert [process.pid for process in processes()] == [ForkedAgent.server.process.pid]


@pytest.mark.usefixtures("signs_of_life")
def test_a_hang_is_a_timeout_with_the_stack_of_each_rank_in_its_log(make_forked_plan, folder):
    result = run_one(make_forked_plan("hang", no_progress_timeout_s=5.0), folder)
    assert result.status is RunStatus.TIMEOUT, result.reason
    stacks = [(folder.repeat(0) / f"log.{rank}.txt").read_text() for rank in (0, 1)]
    assert "in barrier" in stacks[0]
    assert "in hang" in stacks[1]


def test_a_killed_driver_takes_server_and_ranks_along(make_forked_plan, folder, start_driver, processes):
    driver = start_driver(make_forked_plan("hang"))
    until((folder.repeat(0) / "samples.1.jsonl").exists)
    assert len(processes()) >= 5
    driver.kill()
    driver.wait()
    until(lambda: not processes())
    assert folder.state() == "killed"


def test_a_killed_server_takes_its_ranks_along_and_the_run_says_so(make_forked_plan, folder, start_driver, processes):
    driver = start_driver(make_forked_plan("hang"))
    until((folder.repeat(0) / "samples.1.jsonl").exists)
    (server,) = [
        process for process in psutil.Process(driver.pid).children() if "llmexp.launch.fork_server" in process.cmdline()
    ]
    server.kill()
    driver.wait()
    until(lambda: not processes())
    assert re.search("was killed by SIGKILL", folder.result().reason)


def test_a_rank_that_breaks_before_it_can_report_is_the_reason(make_forked_plan, folder):
    result = run_one(make_forked_plan("broken"), folder)
    assert (result.status, result.reason) == (
        RunStatus.FAILED,
        "the launcher ended with exit code 1: RuntimeError: broken before it is a rank",
    )


def test_ranks_that_cannot_be_started_say_why(make_forked_plan, folder):
    plan = make_forked_plan("train")
    with listening(LOOPBACK, 0) as taken:
        port = str(taken.getsockname()[1])
        argv = [word.replace("{port}", port) for word in plan.command.argv]
        result = run_one(plan.model_copy(update={"command": plan.command.model_copy(update={"argv": argv})}), folder)
    assert result.status is RunStatus.FAILED
    assert "Address already in use" in result.reason
    assert port in result.reason


def test_a_worker_that_cannot_be_imported_is_the_runs_reason_and_the_next_repeat_gets_another_server(
    make_forked_plan, folder
):
    plan = make_forked_plan("hang")
    argv = [word.replace("forked_worker", "no_such_worker") for word in plan.command.argv]
    result = run_one(plan.model_copy(update={"command": Command(argv=argv, env=plan.command.env)}), folder)
    assert (result.status, "ModuleNotFoundError: No module named 'no_such_worker'" in result.reason) == (
        RunStatus.FAILED,
        True,
    ), result.reason
    ended = ForkedAgent.server
    assert run_one(make_forked_plan("out_of_memory"), folder).status is RunStatus.OOM
    assert ForkedAgent.server is not ended


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["hardware=a800"], "a process that has imported torch and DeepSpeed cannot be forked for GPUs"),
        (["hardware=cpu", "hardware.nodes=2"], "it forks ranks on one node"),
        (
            ["hardware=cpu", "runtime=venv", "runtime.python=/usr/bin/python3"],
            "ranks of runtime=venv are not llmexp's own",
        ),
    ],
)
def test_what_cannot_be_forked_is_skipped_with_the_reason(words, reason):
    skip = plan_words("engine.launcher=fork", *words).skip
    assert (skip.code, skip.reason) == ("launcher", f"engine.launcher=fork: {reason}; set engine.launcher=spawn")


def test_a_forked_run_is_another_run_than_one_of_fresh_interpreters():
    ids = {
        launcher: plan_words("hardware=cpu", f"engine.launcher={launcher}").id
        for launcher in ("spawn", "torchrun", "deepspeed", "fork")
    }
    assert ids["spawn"] == ids["torchrun"] == ids["deepspeed"] != ids["fork"]
