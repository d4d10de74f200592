"""What a person types for SLURM, where there is none or a made-up one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from llmexp import __version__
from llmexp.__main__ import main
from llmexp.record.folder import RunFolder
from llmexp.record.installed import installs
from llmexp.slurm.jobs import Intent, Submitted, intend, note, slurm_folder, submissions
from llmexp.slurm.options import read_options
from llmexp.slurm.queue import QueuedJob
from llmexp.training.plan.training_plan import TrainingPlan

HERE = ("hydra/launcher=slurm", "hardware=cpu", "tracking=none")
ALL = dict.fromkeys(("sbatch", "srun", "squeue", "scancel"), "true")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


@pytest.fixture
def submitted(here: Path, tiny_plan) -> Callable[..., RunFolder]:
    """A run whose job was noted."""

    def make(number: str) -> RunFolder:
        folder = RunFolder(here / "outputs" / "main" / "tiny_F_0123456789ab")
        folder.write(folder.plan_path, tiny_plan("F"))
        slurm_folder(folder.path.parent).mkdir()
        note([Submitted(folder, QueuedJob(number, "llmexp-main-1"), "")])
        return folder

    return make


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("hydra/launcher=slurm", "hardware=auto"), "name the nodes' hardware"),
        (("hydra/launcher=slurm",), "name the nodes' hardware"),
        (
            (*HERE, "hydra.launcher.array_parallelism=0"),
            "hydra.launcher.array_parallelism=0: must be a whole number of at least 1",
        ),
        ((*HERE, "hydra.launcher.partiton=gpu"), "unknown key 'hydra.launcher.partiton': did you mean partition?"),
        ((*HERE, "hydra.launcher.setup=module"), "write hydra.launcher.setup=[module]"),
        (
            (*HERE, "hydra.launcher.time=soon"),
            "hydra.launcher.time=soon: must be a whole number of at least 1 or a time of sbatch's",
        ),
        ((*HERE, "hydra.launcher.options.job-name=x"), "llmexp names its jobs itself"),
        (
            (*HERE, "measure.order=interleaved"),
            "measure.order=interleaved: hydra/launcher=slurm gives each run its own driver",
        ),
        (("detach=true", "hardware=cpu"), "detach belongs to hydra/launcher=slurm"),
    ],
)
def test_wrong_input_is_one_line_and_submits_nothing(words, said, commands, capsys, here: Path):
    commands(**ALL | {"sbatch": f"touch {here}/submitted"})
    assert main(words) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
    assert not (here / "submitted").exists()


def test_what_is_skipped_on_any_node_takes_no_job(commands, capsys, here: Path):
    commands(**ALL | {"sbatch": f"touch {here}/submitted"})
    words = ("hydra/launcher=slurm", "tracking=none", "hardware=h100", "model=70b")
    assert main(words) == 0
    assert "skipped: " in capsys.readouterr().out
    assert main(words) == 0
    assert "skipped already, " in capsys.readouterr().out
    assert not (here / "submitted").exists()


def test_no_slurm_is_one_line(commands, capsys):
    commands(squeue="true")
    assert main(HERE) == 2
    assert capsys.readouterr().err.startswith("llmexp: SLURM: there is no sbatch, srun, scancel here; ")


def test_no_submitit_is_one_line(commands, capsys, monkeypatch):
    commands(**ALL)
    monkeypatch.setattr("llmexp.slurm.submit.find_spec", lambda name: None)
    assert main(HERE) == 2
    assert capsys.readouterr().err == f"llmexp: hydra/launcher=slurm needs submitit: {installs('slurm')}\n"


def test_status_tells_queued_from_running(commands, submitted, capsys):
    submitted("7_0")
    commands(**ALL | {"squeue": 'echo "7_0|PENDING|Resources||llmexp-main-1"'})
    assert main(["status"]) == 0
    assert "queued" in (out := capsys.readouterr().out)
    assert "job 7_0 PENDING (Resources)" in out
    commands(squeue='echo "7_0|RUNNING|None|n3|llmexp-main-1"')
    main(["status"])
    assert "running" in (out := capsys.readouterr().out)
    assert "job 7_0 RUNNING (n3)" in out


def test_status_says_who_takes_up_a_held_job(commands, submitted, capsys):
    submitted("7_0")
    commands(**ALL | {"squeue": 'echo "7_0|PENDING|launch failed requeued held||llmexp-main-1"'})
    assert main(["status"]) == 0
    told = "job 7_0 PENDING (launch failed requeued held); the same command resumes it, or llmexp cancel ends it\n"
    assert told in capsys.readouterr().out


def test_status_settles_what_slurm_has_ended(commands, submitted, capsys, monkeypatch):
    monkeypatch.setattr("llmexp.slurm.reconcile.GRACE_S", 0)
    folder = submitted("7_0")
    commands(**ALL | {"squeue": 'echo "7_0|NODE_FAIL|None|n3|llmexp-main-1"'})
    main(["status"])
    assert "ended NODE_FAIL on n3" in capsys.readouterr().out
    assert folder.state() == "killed"


def test_status_finds_a_job_that_no_driver_has_noted(commands, here, tiny_plan, capsys):
    run = RunFolder(here / "outputs" / "main" / "tiny_F_0123456789ab")
    run.write(run.plan_path, tiny_plan("F"))
    slurm_folder(run.path.parent).mkdir()
    intend([Intent(run, "llmexp-main-1", 3, "")])
    commands(
        **ALL
        | {
            "squeue": 'case "$*" in *--jobs=*) echo "7_3|PENDING|Resources||llmexp-main-1";; '
            '*--name=llmexp-main-1*) echo "7_3|llmexp-main-1";; esac'
        }
    )
    assert main(["status"]) == 0
    assert "job 7_3 PENDING (Resources)" in capsys.readouterr().out
    assert [one.job for one in submissions([run])] == [QueuedJob("7_3", "llmexp-main-1")]


def test_status_says_that_slurm_does_not_answer(commands, submitted, capsys):
    submitted("7_0")
    commands(**ALL | {"squeue": 'echo "squeue: error: connect failure" >&2; exit 1'})
    assert main(["status"]) == 0
    told = capsys.readouterr()
    assert "SLURM does not answer" in told.err
    assert "planned" in told.out


SILENT = {"squeue": 'echo "squeue: error: connect failure" >&2; exit 1', "scontrol": "true"}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (
            "sbatch: error: Batch job submission failed: Invalid qos specification",
            2,
            "sbatch refuses the jobs: Invalid qos specification; the",
        ),
        (
            "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
            1,
            "sbatch: Unable to contact slurm",
        ),
        ("", 2, "sbatch refuses the jobs: without a word; the keys of"),
    ],
)
def test_a_refused_submission_leaves_no_job(words, code, said, commands, capsys, here: Path):
    commands(**ALL | SILENT | {"sbatch": f'echo "{words}" >&2; exit 1'})
    assert main([*HERE, "model=tiny"]) == code
    assert f"llmexp: {said}" in capsys.readouterr().err
    assert main(["status"]) == 0
    told = capsys.readouterr()
    assert (told.err, "planned" in told.out) == ("", True)


def test_a_submission_that_may_have_been_taken_is_asked_about(commands, capsys, here: Path):
    commands(
        **ALL | SILENT | {"sbatch": 'echo "sbatch: error: Batch job submission failed: Socket timed out" >&2; exit 1'}
    )
    assert main([*HERE, "model=tiny"]) == 1
    capsys.readouterr()
    main(["status"])
    assert "SLURM does not answer" in capsys.readouterr().err


def test_status_is_silent_about_what_was_asked_long_ago_and_never_noted(commands, submitted, capsys, tiny_plan):
    run = RunFolder(submitted("7_0").path.parent / "tiny_R_0123456789ab")
    run.write(run.plan_path, tiny_plan("R"))
    intend([Intent(run, "llmexp-main-2", None, "")])
    commands(**ALL | SILENT)
    jobs = slurm_folder(run.path.parent) / "jobs.jsonl"
    known, lost = jobs.read_text().splitlines(keepends=True)
    record = json.loads(lost)
    old = json.dumps(record | {"at": "2025-01-01T00:00:00.000+00:00"})
    for text, says in ((known + lost, True), (lost, True), (old, False), (known + old, True)):
        jobs.write_text(text)
        main(["status"])
        assert ("SLURM does not answer" in capsys.readouterr().err) is says


def queued_from(run: RunFolder) -> str:
    """A made-up squeue that has the job, and its script."""
    script = slurm_folder(run.path.parent) / "llmexp-main-1" / ".submission_file_0.sh"
    return f'case "$*" in *%o*) echo "7_0|{script}";; *) echo "7_0|PENDING|Resources||llmexp-main-1";; esac'


def test_cancel_ends_what_is_queued_and_nothing_else(commands, submitted, capsys, here: Path):
    run = submitted("7_0")
    commands(**ALL | {"squeue": queued_from(run), "scancel": f'echo "$@" >> {here}/cancelled'})
    assert main(["cancel", str(run.path)]) == 0
    assert capsys.readouterr().out == "cancelled: job 7_0\n"
    commands(squeue='echo "7_0|COMPLETED|None|n1|llmexp-main-1"')
    main(["cancel", "outputs"])
    assert capsys.readouterr().out == "no SLURM job of these runs is queued or running\n"
    assert (here / "cancelled").read_text() == "--name=llmexp-main-1 7_0\n"


def test_jobs_of_another_version_are_a_line_and_hide_no_other_sweep(commands, submitted, capsys, here: Path, tiny_plan):
    own = submitted("7_0")
    foreign = RunFolder(here / "outputs" / "foreign" / "tiny_R_0123456789ab")
    foreign.write(foreign.plan_path, tiny_plan("R"))
    jobs = slurm_folder(foreign.path.parent) / "jobs.jsonl"
    jobs.parent.mkdir()
    jobs.write_text('{"folder": "tiny_R_0123456789ab", "job": "5", "replaces": "", "written_by": "0.0.9"}\n')
    said = (
        f"llmexp: outputs/foreign/slurm/jobs.jsonl is not a list of jobs of this llmexp, {__version__}: "
        "it has no 'name'; llmexp 0.0.9 wrote it: "
    )
    commands(**ALL | {"squeue": queued_from(own), "sbatch": f"touch {here}/submitted"})
    assert main(["status"]) == 0
    told = capsys.readouterr()
    assert (
        told.err.startswith(said),
        told.err.count("\n"),
        "job 7_0 PENDING" in told.out,
        "foreign/tiny_R" in told.out,
    ) == (True, 1, True, True)
    assert main(["cancel", "outputs"]) == 1
    told = capsys.readouterr()
    assert (told.err.startswith(said), told.out) == (True, "cancelled: job 7_0\n")
    shutil.move(foreign.path, foreign.path.parent / tiny_plan("R").folder_name)
    assert main([*HERE, "model=tiny", "sweep.name=foreign"]) == 1
    assert said in capsys.readouterr().err
    assert not (here / "submitted").exists()


def test_a_result_of_another_version_is_a_line_and_neither_submitted_nor_written_over(commands, capsys, here: Path):
    commands(**ALL | {"sbatch": f"touch {here}/submitted"})
    words = (*HERE, "model=tiny")
    main(["plan", *words[1:], "--json"])
    plan = TrainingPlan.of(json.loads(capsys.readouterr().out)["plan"])
    run = RunFolder(here / "outputs" / "main" / plan.folder_name)
    run.write(run.plan_path, plan)
    run.result_path.write_text('{"color": "red", "written_by": "9.1"}')
    assert main(words) == 1
    told = capsys.readouterr()
    assert "result.json is not a result of this llmexp" in told.err
    assert "llmexp 9.1 wrote it: read it with that version, or move " in told.err
    assert (told.err.count("\n"), (here / "submitted").exists()) == (1, False)
    assert run.result_path.read_text().startswith('{"color"')


def test_a_damaged_result_is_submitted_again_and_a_lost_plan_written_again(
    commands, capsys, here: Path, tiny_plan, result_of
):
    commands(**ALL | {"sbatch": "echo Submitted batch job 7", "scontrol": "true"})
    words = (*HERE, "model=tiny", "detach=true", "rerun=none")
    main(["plan", *words[1:4], "--json"])
    plan = TrainingPlan.of(json.loads(capsys.readouterr().out)["plan"])
    run = RunFolder(here / "outputs" / "main" / plan.folder_name)
    run.write(run.result_path, result_of(plan, "success"))
    assert main(words) == 0
    assert "; its plan.json was missing and was written again\n" in capsys.readouterr().out
    assert TrainingPlan.read(run.plan_path).id == plan.id
    run.result_path.write_text("{")
    assert main(words) == 0
    out = capsys.readouterr().out
    assert f"{run.path.name}: again, its result.json is damaged\n1 submitted: job 7\n" in out
    assert (run.path / "previous" / "1" / "result.json").read_text() == "{"


def test_logs_are_the_jobs_then_the_launchers_then_the_ranks(submitted, capsys):
    run = submitted("7_0")
    log = run.path.parent / "slurm" / "llmexp-main-1" / "7_0_0_log.out"
    for path in (log, *(run.repeat(0) / f"log.{name}.txt" for name in (10, 2, "agent"))):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{path.name} speaks\n")
    main(["logs", str(run.path)])
    spoken = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.endswith("speaks")]
    assert spoken == ["7_0_0_log.out", "log.agent.txt", "log.2.txt", "log.10.txt"]


@pytest.mark.parametrize("time", [30, "30", "30:00", "2:30:00", "2-12", "2-12:30", "2-12:30:00", "UNLIMITED"])
def test_every_way_in_which_sbatch_writes_a_time_is_taken(time):
    assert read_options({"time": time}).time == time


def test_memory_may_be_a_number():
    assert read_options({"mem": 0}).mem == 0
