"""Sweeps on a real SLURM: what ends well, badly, early or twice, and what the waiting driver and another shell say."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal

import pytest
from patience import HANG_S

from llmexp.launch import code

pytestmark = pytest.mark.slurm


def states(cluster, *jobs: str) -> list[str]:
    """How the accounting says that jobs ended."""
    told = cluster.run("sacct", "-n", "-X", "-P", "-o", "JobID,State", "-j", ",".join(jobs)).splitlines()
    ended = dict(line.split("|") for line in told)
    return [ended.get(job, "").partition(" ")[0] for job in jobs]


def test_a_sweep_waits_shows_each_error_and_fails_in_slurms_eyes_too(shell, cluster, until):
    done = shell.sweep("well,broken")
    assert done.returncode == 1, done.stderr
    assert (
        "tiny Naive engine.options.behavior=broken · failed: the launcher ended with exit code 1: ValueError: "
        "no such thing · job " in done.stderr
    )
    assert "tiny Naive engine.options.behavior=well · success · job " in done.stderr
    assert "Traceback" not in done.stderr
    assert "no such thing" in done.stdout
    jobs = shell.job("well"), shell.job("broken")
    until(lambda: states(cluster, *jobs) == ["COMPLETED", "FAILED"])
    assert shell.run("well").events()[0]["slurm_job"] == jobs[0]
    assert "no such thing" in shell.llmexp("logs", str(shell.run("broken").path)).stdout


def test_the_same_sweep_again_submits_only_what_has_no_answer(shell):
    shell.sweep("well,broken")
    first = shell.job("well"), shell.job("broken")
    done = shell.sweep("well,broken")
    assert "success already" in done.stdout
    assert "again, it ended failed" in done.stdout
    assert shell.job("well") == first[0]
    assert shell.job("broken") != first[1]


def test_scancel_of_running_and_queued_jobs_is_told(shell, cluster, until):
    driver = shell.start_sweep("endless,well", "hydra.launcher.array_parallelism=1")
    until(lambda: shell.samples("endless"))
    cluster.run("scancel", shell.job("well").partition("_")[0])
    _, said = driver.communicate(timeout=HANG_S)
    assert driver.returncode == 1
    assert (shell.result("endless").status, shell.result("endless").reason) == ("killed", "terminated by SIGTERM")
    assert shell.result("well").status == "killed"
    assert "ended CANCELLED before the run began" in shell.result("well").reason
    assert shell.result("well").reason in said


@pytest.mark.slow
def test_a_cancelled_repetition_leaves_the_earlier_answer(shell, cluster, until):
    shell.sweep("well")
    answer = shell.result("well")
    driver = shell.start_sweep("well", "rerun=all", "hydra.launcher.options.begin=now+1hour")
    until(lambda: "queued" in shell.llmexp("status").stdout)
    assert shell.llmexp("cancel", "outputs/main").stdout == f"cancelled: job {shell.job('well')}\n"
    _, said = driver.communicate(timeout=HANG_S)
    assert driver.returncode == 1
    assert "its earlier result stays" in said
    assert shell.result("well") == answer


@pytest.mark.slow
def test_the_time_limit_is_a_timeout(shell):
    done = shell.sweep("endless", "hydra.launcher.time=1", "hydra.launcher.options.signal=USR2@1")
    assert done.returncode == 1
    assert shell.result("endless").status == "timeout"
    assert "SLURM's time limit" in shell.result("endless").reason


def test_a_preempted_run_is_queued_again_and_measured(shell, cluster, until):
    driver = shell.start_sweep("again")
    until(lambda: shell.samples("again"))
    job = shell.job("again")
    cluster.run("sbatch", "--partition=urgent", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 2")
    until(lambda: "PENDING" in cluster.run("squeue", "-h", "-o", "%T", "-j", job))
    cluster.run(
        "scontrol", "update", f"JobId={job}", "StartTime=now"
    )  # SLURM holds what it queues again for two minutes
    _, said = driver.communicate(timeout=HANG_S)
    assert driver.returncode == 0, said
    assert "killed: terminated by SIGTERM" in said
    assert shell.result("again").status == "success"
    assert shell.run("again").events()[0]["slurm_restarts"] == 1
    aside = shell.run("again").path / "previous" / "1" / "result.json"
    assert json.loads(aside.read_text())["status"] == "killed"


@pytest.mark.slow
def test_a_run_is_measured_elsewhere_after_its_node_is_lost(shell, cluster, until):
    driver = shell.start_sweep("again")
    until(lambda: shell.samples("again"))
    job = shell.job("again")
    node = cluster.run("squeue", "-h", "-o", "%N", "-j", job).strip()
    cluster.kill(node)
    try:
        until(lambda: "PENDING" in cluster.run("squeue", "-h", "-o", "%T", "-j", job), 120)
        cluster.run("scontrol", "update", f"JobId={job}", "StartTime=now")
        _, said = driver.communicate(timeout=HANG_S)
    finally:
        cluster.start_node(node)
        cluster.wait_for(lambda: node in cluster.nodes("idle"))
    assert driver.returncode == 0, said
    assert shell.result("again").status == "success"


@pytest.mark.slow
def test_a_lost_node_without_requeue_is_told(shell, cluster, until):
    driver = shell.start_sweep("endless", "hydra.launcher.requeue=false")
    until(lambda: shell.samples("endless"))
    node = cluster.run("squeue", "-h", "-o", "%N", "-j", shell.job("endless")).strip()
    cluster.kill(node)
    try:
        driver.communicate(timeout=HANG_S)
    finally:
        cluster.start_node(node)
        cluster.wait_for(lambda: node in cluster.nodes("idle"))
    assert driver.returncode == 1
    assert shell.result("endless").status == "killed"
    assert f"ended NODE_FAIL on {node}" in shell.result("endless").reason


def test_a_controllers_restart_loses_nothing(shell, cluster, until):
    driver = shell.start_sweep("well_when_released,broken_when_released")
    until(lambda: shell.samples("well_when_released") and shell.samples("broken_when_released"))
    cluster.stop_controller()
    (shell.folder / "outputs" / "main" / "released").touch()
    until(lambda: shell.run("broken_when_released").result() and shell.run("well_when_released").result())
    assert driver.poll() is None
    cluster.start_controller()
    _, said = driver.communicate(timeout=HANG_S)
    assert driver.returncode == 1
    assert (shell.result("well_when_released").status, shell.result("broken_when_released").status) == (
        "success",
        "failed",
    )
    assert "Traceback" not in said


@pytest.mark.slow
def test_a_number_that_the_controller_gives_away_again_is_no_longer_the_runs(shell, cluster, until, tmp_path):
    with cluster.forgetting(tmp_path / "state"):
        driver = shell.start_sweep("well", "hydra.launcher.options.hold=true")
        until(lambda: shell.has_job("well"))
        lost = shell.job("well")
    theirs = cluster.run("sbatch", "--parsable", "--hold", "--output=/dev/null", "--wrap=true").strip()
    assert theirs == lost
    shell.llmexp("cancel", "outputs")
    driver.communicate(timeout=HANG_S)
    assert driver.returncode == 1
    assert (shell.result("well").status, shell.result("well").reason.partition(",")[0]) == (
        "killed",
        f"SLURM's job {lost} is gone",
    )
    assert cluster.run("squeue", "-h", "-o", "%T", "-j", theirs) == "PENDING\n"


@pytest.mark.slow
def test_a_number_that_a_node_still_has_of_a_lost_job_is_tried_again(shell, cluster, until, tmp_path):
    # Ready before the controller is back: the node ends the lost job five seconds later.
    with shell.sbatch('touch asked; while [ ! -e back ]; do sleep 0.05; done; exec {sbatch} "$@"'):
        driver = shell.start_sweep("well", "sweep.name=other")
        until((shell.folder / "asked").exists)
    with cluster.forgetting(tmp_path / "state"):
        lost = shell.start_sweep("endless")
        until(lambda: shell.samples("endless"))
    (shell.folder / "back").touch()
    try:
        told = next(line for line in driver.stderr if "refused" in line)
        assert told == f"tiny Naive · job {shell.job('well')} was refused by its node; queued again\n"
        until(lambda: "BeginTime" in cluster.run("squeue", "-h", "-o", "%r", "-j", shell.job("well")))
        cluster.run("scontrol", "update", f"JobId={shell.job('well')}", "StartTime=now")
        _, said = driver.communicate(timeout=HANG_S)
    finally:
        for node in cluster.nodes("drain"):
            cluster.run("scontrol", "update", f"NodeName={node}", "State=RESUME")
    assert driver.returncode == 0, said
    assert shell.job("well") == shell.job("endless")
    lost.communicate(timeout=HANG_S)
    assert shell.result("endless").status == "killed"


@pytest.mark.slow
def test_a_job_that_can_never_be_placed_is_told(shell, cluster, until):
    driver = shell.start_sweep("well", "hydra.launcher.partition=brief")
    told = next(line for line in driver.stderr if "cannot be placed" in line)
    run = shell.run("well").path.relative_to(shell.folder)
    assert re.search(
        rf"job {shell.job('well')} cannot be scheduled as requested: Partition\w+; llmexp cancel {run} ends it", told
    )
    shell.llmexp("cancel", str(run))
    driver.communicate(timeout=HANG_S)
    assert driver.returncode == 1
    assert shell.result("well").status == "killed"


@pytest.mark.slow
def test_a_supervisor_that_is_killed_is_told_by_slurm(shell):
    done = shell.sweep("deaf")
    assert done.returncode == 1
    assert shell.result("deaf").status == "failed"
    assert "ended FAILED on n" in shell.result("deaf").reason


def test_a_terminal_shows_the_steps_of_a_running_job(shell):
    terminal, drivers_end = os.openpty()
    shell.env["TERM"] = "xterm"
    shell.start_sweep("endless", stderr=drivers_end)
    os.close(drivers_end)
    with open(terminal, errors="replace") as screen:
        assert any(re.search(r"RUNNING \(n\d\) +step 1/3 \(warm-up\) · 10,000 tokens/s", line) for line in screen)


def test_other_shells_take_over_what_was_detached(shell, cluster, until):
    done = shell.sweep("endless,well", "detach=true")
    assert done.returncode == 0, done.stderr
    assert "2 submitted: job " in done.stdout
    until(lambda: shell.samples("endless"))
    told = shell.llmexp("status", "outputs").stdout
    assert f"job {shell.job('endless')} RUNNING (n" in told
    run = str(shell.run("endless").path)
    assert "going on" in shell.llmexp("logs", run).stdout or "tiny Naive" in shell.llmexp("logs", run).stdout
    again = shell.start_sweep("endless,well", "hydra.launcher.array_parallelism=1")
    assert any("under way already" in line for line in again.stdout)
    assert shell.llmexp("cancel", run).stdout == f"cancelled: job {shell.job('endless')}\n"
    out, _ = again.communicate(timeout=HANG_S)
    assert "submitted" not in out
    assert shell.result("endless").reason == "terminated by SIGTERM"
    assert "killed" in shell.llmexp("status").stdout


def test_a_copied_sweep_does_not_end_the_jobs_of_the_original(shell, until):
    assert shell.sweep("endless", "detach=true").returncode == 0
    until(lambda: shell.samples("endless"))
    job, outputs = shell.job("endless"), shell.folder / "outputs"
    shutil.copytree(outputs / "main", shell.folder / "copied" / "main")
    told = shell.llmexp("cancel", "copied")
    assert (told.returncode, told.stderr) == (
        1,
        f"llmexp: job {job} keeps running: SLURM says that it does not belong to copied/main; "
        f"scancel {job} would end it\n",
    )
    assert f"job {job} RUNNING (n" in shell.llmexp("status", "outputs").stdout
    assert shell.llmexp("cancel", "outputs").stdout == f"cancelled: job {job}\n"


def test_jobs_of_a_driver_killed_before_it_could_note_them_are_taken_over(shell, until):
    words = "well_when_released,again"
    with shell.sbatch('{sbatch} "$@" && kill -9 $PPID'):
        assert shell.sweep(words).returncode == -signal.SIGKILL
    assert '"job"' not in (shell.folder / "outputs" / "main" / "slurm" / "jobs.jsonl").read_text()

    until(lambda: shell.samples("again") and shell.samples("well_when_released"))
    jobs = shell.job("well_when_released"), shell.job("again")
    told = shell.llmexp("status").stdout
    assert [f"job {job} RUNNING" in told for job in jobs] == [True, True]
    assert shell.llmexp("cancel", str(shell.run("again").path)).stdout == f"cancelled: job {jobs[1]}\n"
    until(lambda: shell.run("again").result())
    (shell.folder / "outputs" / "main" / "released").touch()
    done = shell.sweep(words)
    assert done.returncode == 0, done.stderr
    assert (shell.result("well_when_released").status, shell.result("again").status) == ("success", "success")
    assert (shell.job("well_when_released"), shell.job("again") == jobs[1]) == (jobs[0], False)
    assert [len(list((shell.run(name).path / "previous").glob("*"))) for name in words.split(",")] == [0, 1]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("hydra.launcher.partition=nope", "invalid partition specified: nope"),
        ("hydra.launcher.gpus_per_node=9", "node configuration is not available"),
        ("hydra.launcher.options.no_such_option=1", "unrecognized option"),
    ],
)
def test_what_sbatch_refuses_is_one_line(word, said, shell):
    done = shell.sweep("well", word)
    assert done.returncode == 2
    assert done.stderr.startswith("llmexp: sbatch refuses the jobs: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_gpus_are_asked_for_and_given(shell):
    words = ["hardware=h100", "parallelism.dp=2", "hydra.launcher.cpus_per_task=1"]
    done = shell.sweep("well", *words)
    assert "hardware=h100 does not match this node" in shell.result("well").reason, done.stderr
    script = next((shell.folder / "outputs" / "main" / "slurm").glob("*/*_submission.sh"))
    assert "--gpus-per-node=2" in script.read_text()


def test_a_run_of_two_nodes_is_one_job_with_a_task_on_each(shell):
    done = shell.sweep("well", "hardware.nodes=2", "parallelism.dp=2", "node.address=127.0.0.1")
    assert done.returncode == 0, done.stderr
    result = shell.result("well")
    assert (result.status, result.processes) == ("success", 2)
    assert result.environment["other_nodes"][0].startswith("node 1 (")


def test_more_runs_than_an_array_may_have_are_several_arrays(shell):
    seeds = ",".join(map(str, range(9)))
    done = shell.sweep("well", f"seed={seeds}", "detach=true")
    assert "9 submitted: job " in done.stdout
    assert len(set(done.stdout.split("submitted: job ")[1].splitlines()[0].split(", "))) == 2


def test_edits_after_submission_reach_no_queued_job(shell, scripted, cluster, until, tmp_path):
    source = shutil.copytree(code.snapshot(tmp_path / "first"), tmp_path / "source")
    site = shutil.copytree(scripted, tmp_path / "site")
    shell.env["PYTHONPATH"] = f"{source}:{site}"
    shell.sweep("well", "detach=true", "hydra.launcher.options.hold=true")
    for edited in (
        source / "llmexp" / "launch" / "run.py",
        source / "llmexp" / "cli" / "sweep.py",
        site / "llmexp_scripted" / "rank.py",
    ):
        edited.write_text("raise SystemExit('edited')")
    cluster.run("scontrol", "release", shell.job("well"))
    until(lambda: shell.run("well").result())
    assert shell.result("well").status == "success"


def test_the_plugin_of_submitit_runs_sweeps_too(shell):
    words = ("hydra/launcher=submitit_slurm", *shell.WORDS[1:-1], "hydra.launcher.timeout_min=5")
    done = shell.llmexp("engine.options.behavior=well,broken", *words)
    assert done.returncode == 1, done.stderr
    assert (shell.result("well").status, shell.result("broken").status) == ("success", "failed")
    assert "no such thing" in done.stdout
