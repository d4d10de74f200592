from __future__ import annotations

import os
import re
import signal
import sys

import pytest
from patience import HANG_S, until

from llmexp.errors import BuildError
from llmexp.launch.run import run_one
from llmexp.record.folder import RunFolder
from llmexp.record.result import RunStatus
from llmexp.record.skip import Skip
from llmexp.tasks.engine import Engine
from llmexp.training.plan.training_plan import TrainingPlan


def test_success_leaves_plan_samples_metrics_and_events(make_plan, folder, capsys):
    result = run_one(make_plan("well", repeats=2), folder)
    assert result.status is RunStatus.SUCCESS, result.reason
    assert result == folder.result()
    assert TrainingPlan.read(folder.plan_path).id == result.id
    assert [event["status"] for event in folder.events()] == ["running", "success"]
    assert [repeat.name for repeat in folder.repeats()] == ["repeat.0", "repeat.1"]
    assert result.repeats == 2
    assert result.metrics["tokens_per_s"].mean == pytest.approx(2 * 100 / 0.01)
    assert result.metrics["tokens_per_s"].n == 2
    assert result.what_ran == {"backend": "gloo"}
    assert result.started_at < result.ended_at
    assert folder.system_path.exists()
    assert re.search(r" after [\d.]+ s$", capsys.readouterr().err.rstrip())


def test_the_end_is_one_line(make_plan, folder, capsys):
    run_one(make_plan("well", warmup_steps=1, steps=2), folder)
    loss = folder.result().metrics["final_loss"].mean
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "tiny Naive · starting"
    assert lines[-1].startswith(f"tiny Naive · success · loss {loss:.4g} after 3 steps · after ")


def test_repeats_end_when_the_interval_is_narrow_enough(make_plan, folder):
    steady = run_one(make_plan("well", repeats=6, stop_at_interval_share=0.01), folder)
    assert (steady.repeats, steady.metrics["tokens_per_s"].n) == (3, 3)


def test_repeats_go_on_while_they_disagree(make_plan, folder):
    assert run_one(make_plan("well_at_another_speed", repeats=4, stop_at_interval_share=0.01), folder).repeats == 4


def test_ranks_get_the_commands_environment_and_pinned_threads(make_plan, folder):
    environment = run_one(make_plan("well", threads_per_rank=3), folder).environment
    assert environment["extra"] == "yes"
    assert environment["omp_num_threads"] == "3"
    assert environment["host"]


def test_cpu_ranks_share_the_cores(make_plan, folder, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8))
    assert run_one(make_plan("well"), folder).environment["omp_num_threads"] == "4"


def test_plan_is_there_before_the_ranks_start(make_plan, folder):
    argv = [
        "sh",
        "-c",
        'test -e "$0/../plan.json" && test -e "$0/../events.jsonl" && echo present >&2; exit 7',
        "{folder}",
    ]
    assert run_one(make_plan(argv=argv), folder).reason == "the launcher ended with exit code 7: present"


@pytest.mark.parametrize(
    ("behavior", "status", "reason"),
    [
        ("incomplete", RunStatus.INCOMPLETE, "the launcher succeeded, but rank 1 left no summary in repeat.0"),
        ("out_of_memory", RunStatus.OOM, "rank 1: OutOfMemoryError: tried to allocate 2 GiB"),
        ("killed", RunStatus.KILLED, "the launcher was killed by SIGKILL"),
        ("broken", RunStatus.FAILED, "the launcher ended with exit code 1: ValueError: no such thing"),
    ],
)
def test_other_endings_are_named(make_plan, folder, behavior, status, reason):
    result = run_one(make_plan(behavior), folder)
    assert (result.status, result.reason) == (status, reason)
    assert result.metrics == {}
    assert result.environment["host"]
    assert folder.state() == status.value
    assert folder.events()[-1]["reason"] == reason


def test_a_process_that_no_launcher_started_is_called_a_rank(make_plan, folder):
    plan = make_plan("killed")
    engine = plan.config.engine.model_copy(update={"launcher": "python"})
    result = run_one(plan.model_copy(update={"config": plan.config.model_copy(update={"engine": engine})}), folder)
    assert (result.status, result.reason) == (RunStatus.KILLED, "rank 0 was killed by SIGKILL")


def test_allocator_figures_of_an_out_of_memory_rank_are_kept(make_plan, folder):
    assert run_one(make_plan("out_of_memory"), folder).failure.allocator == {"allocated_bytes": 7}


def test_command_that_does_not_exist_is_a_failure(make_plan, folder):
    result = run_one(make_plan(argv=["no-such-launcher"]), folder)
    assert result.status is RunStatus.FAILED
    assert "no-such-launcher" in result.reason


def test_failing_repeat_ends_the_run_and_keeps_the_finished_ones(make_plan, folder):
    result = run_one(make_plan("well_then_broken", repeats=3), folder)
    assert (result.status, result.repeats) == (RunStatus.FAILED, 1)
    assert result.what_ran == {"backend": "gloo"}
    assert len(folder.repeats()) == 2


def test_impossible_metrics_are_a_failure_not_a_crash(make_plan, folder):
    plan = make_plan("well")
    hardware = plan.config.hardware.model_copy(update={"peak_flops_per_s": {"fp32": 1.0}})
    result = run_one(plan.model_copy(update={"config": plan.config.model_copy(update={"hardware": hardware})}), folder)
    assert result.status is RunStatus.FAILED
    assert result.reason.startswith("MFU of")


def test_skip_starts_nothing(make_plan, folder):
    result = run_one(
        make_plan("well").model_copy(update={"skip": Skip(code="unsupported", reason="engine cannot")}), folder
    )
    assert (result.status, result.reason) == (RunStatus.SKIPPED, "engine cannot")
    assert folder.repeats() == []


def test_ops_that_cannot_be_built_are_a_failure_in_their_own_words(make_plan, folder, monkeypatch):
    def refuse(self, plan):
        raise BuildError("cpu_adam could not be built")

    monkeypatch.setattr(Engine, "prepare", refuse)
    assert run_one(make_plan("well"), folder).reason == "cpu_adam could not be built"


@pytest.mark.parametrize("behavior", ["well", "killed"])
def test_what_ranks_leave_elsewhere_is_removed_however_they_end(make_plan, folder, monkeypatch, behavior):
    cleaned, plan = [], make_plan(behavior)
    monkeypatch.setattr(Engine, "clean_up", lambda self, plan, run: cleaned.append((plan.id, run)))
    run_one(plan, folder)
    assert cleaned == [(plan.id, folder.path)]


def test_an_error_of_our_own_does_not_leave_a_run_that_seems_to_go_on(make_plan, folder, monkeypatch):
    monkeypatch.setattr(Engine, "prepare", lambda self, plan: {}["missing"])
    with pytest.raises(KeyError):
        run_one(make_plan("well"), folder)
    assert folder.result() is not None
    assert folder.result().status is RunStatus.FAILED


def test_ranks_import_nothing_from_the_working_directory(make_plan, folder, tmp_path, monkeypatch):
    (tmp_path / "psutil.py").write_text("open('ran', 'w')")
    monkeypatch.chdir(tmp_path)
    start = [
        sys.executable,
        "-m",
        "llmexp.launch.ranks",
        "1",
        "{node}",
        "1",
        "{address}",
        "{port}",
        "-c",
        "import psutil",
    ]
    assert run_one(make_plan(argv=start), folder).status is RunStatus.INCOMPLETE
    assert not (tmp_path / "ran").exists()


def test_timeout_ends_a_run_that_still_makes_progress(make_plan, folder):
    result = run_one(make_plan("slow", timeout_s=4.0), folder)
    assert result.status is RunStatus.TIMEOUT
    assert result.reason == "the run took longer than measure.timeout_s=4"
    assert (folder.repeat(0) / "samples.0.jsonl").read_text().count("\n") > 1


def test_timeout_of_a_program_whose_steps_are_not_heard_of_says_what_to_do(make_plan, folder):
    plan = make_plan("unheard", timeout_s=1.0)
    result = run_one(
        plan.model_copy(update={"engine_config": {"line": None, "callback": False, "every_step": "--log 1"}}), folder
    )
    assert result.status is RunStatus.TIMEOUT
    assert result.reason.startswith(
        "the run took longer than measure.timeout_s=1; no step was reported: call llmexp.hook.step("
    )
    assert "lines, the last of rank 0: 'iteration " in result.reason


def test_standstill_leaves_stacks_and_no_process(make_plan, folder):
    result = run_one(make_plan("hang", no_progress_timeout_s=2.0), folder)
    assert result.status is RunStatus.TIMEOUT
    assert "measure.no_progress_timeout_s=2" in result.reason
    assert "in hang" in (folder.repeat(0) / "log.0.txt").read_text()


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (signal.SIGINT, "interrupted by the user"),
        (signal.SIGTERM, "terminated by SIGTERM"),
        (signal.SIGHUP, "its terminal was closed (SIGHUP)"),
    ],
)
def test_interrupted_driver_leaves_a_result_and_no_process(make_plan, folder, start_driver, processes, number, reason):
    driver = start_driver(make_plan("slow"))
    until(lambda: _sampled(folder))
    driver.send_signal(number)
    assert driver.wait(timeout=HANG_S) != 0
    assert (folder.result().status, folder.result().reason) == (RunStatus.KILLED, reason)
    assert processes() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR2])
def test_signals_that_follow_the_first_do_not_cost_the_result(make_plan, folder, start_driver, number):
    driver = start_driver(make_plan("slow"))
    until(lambda: _sampled(folder))
    while driver.poll() is None and not folder.result_path.exists():
        driver.send_signal(number)
    driver.wait(timeout=HANG_S)
    expected = {signal.SIGTERM: RunStatus.KILLED, signal.SIGUSR2: RunStatus.TIMEOUT}
    assert folder.result().status is expected[number]


@pytest.mark.slow
def test_a_stopped_supervisor_holds_no_run_past_its_limit(make_plan, folder, start_driver, processes):
    driver = start_driver(make_plan("hang", no_progress_timeout_s=2.0))
    until(lambda: _sampled(folder))
    (supervisor,) = [process for process in processes() if "llmexp.launch.supervisor" in process.cmdline()]
    supervisor.suspend()
    driver.wait(timeout=HANG_S)
    assert folder.result().status is RunStatus.TIMEOUT
    assert processes() == []


def test_killed_driver_leaves_no_process_and_a_truthful_folder(make_plan, folder, start_driver, processes):
    driver = start_driver(make_plan("hang"))
    until(lambda: _sampled(folder))
    assert len(processes()) >= 4
    driver.kill()
    driver.wait()
    until(lambda: not processes())
    assert folder.state() == "killed"
    assert folder.result() is None


def _sampled(folder: RunFolder) -> bool:
    path = folder.repeat(0) / "samples.0.jsonl"
    return path.exists() and path.read_text().endswith("\n")
