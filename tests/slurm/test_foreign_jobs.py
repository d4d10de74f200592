"""What a folder that somebody else has made, or a copy, says of jobs.

Those of one's own that SLURM does not have from there are left alone.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmexp.__main__ import main
from llmexp.record.folder import RunFolder
from llmexp.slurm.follow import follow
from llmexp.slurm.jobs import slurm_folder, submissions
from llmexp.slurm.options import read_options

RUN = "tiny_F_0123456789ab"
# Answers as SLURM does: where a job stands, by its number; by which name it goes; from which script it is.
SQUEUE = """
case "$*" in
  *%o*) echo '{number}|{script}' ;;
  *%T*) echo '{number}|{state}|n1|{name}' ;;
  *--name={name}*) echo '{number}|{name}' ;;
esac
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def sweep(here: Path, tiny_plan) -> Callable[..., Path]:
    """A sweep's folder with one run, of whose jobs its lines tell."""

    def make(path: str, *lines: dict[str, Any]) -> Path:
        folder = RunFolder(here / path / RUN)
        folder.write(folder.plan_path, tiny_plan("F"))
        slurm_folder(here / path).mkdir()
        jobs = slurm_folder(here / path) / "jobs.jsonl"
        jobs.write_text("".join(json.dumps({"folder": RUN, "replaces": "", **line}) + "\n" for line in lines))
        return here / path

    return make


@pytest.fixture
def cluster(here: Path, commands) -> Callable[..., Path]:
    """A SLURM that has one job; a file that says what was cancelled or released."""

    def make(script: Path | str, name: str = "train", number: str = "55", state: str = "RUNNING|None") -> Path:
        squeue = SQUEUE.format(number=number, script=script, name=name, state=state)
        ended = f'echo "$@" >> {here}/ended'
        commands(sbatch="true", srun="true", scontrol=ended, scancel=ended, squeue=squeue)
        return here / "ended"

    return make


def script_of(sweep: Path, name: str) -> Path:
    """Where a submission of the sweep leaves what SLURM is given."""
    return slurm_folder(sweep) / name / ".submission_file_0.sh"


def refused(capsys: pytest.CaptureFixture[str]) -> str:
    told = capsys.readouterr()
    assert told.err.count("\n") == 1, told.err
    return told.err


FROM_NUMBER = {"job": "55", "name": "train"}
FROM_NAME = {"name": "train", "task": None}


@pytest.mark.parametrize("line", [FROM_NUMBER, FROM_NAME], ids=["by its number", "by its name"])
@pytest.mark.parametrize(
    "script", ["/home/me/thesis/train.sh", "(null)", ""], ids=["a script", "a shell", "nothing said"]
)
def test_a_job_of_my_own_that_a_foreign_folder_names_goes_on(line, script, sweep, cluster, capsys) -> None:
    sweep("from_a_colleague/main", line)
    ended = cluster(script)
    assert main(["cancel", "from_a_colleague"]) == 1
    assert not ended.exists()
    assert (
        "llmexp: job 55 keeps running: SLURM says that it does not belong to "
        "from_a_colleague/main; scancel 55 would end it\n" in refused(capsys)
    )


def test_a_copy_of_a_sweep_does_not_end_the_sweeps_jobs(sweep, cluster, capsys, here: Path) -> None:
    mine = sweep("outputs/main", {"job": "55", "name": "llmexp-main-1"})
    ended = cluster(script_of(mine, "llmexp-main-1"), "llmexp-main-1")
    shutil.copytree(mine, here / "outputs" / "copy")
    assert main(["cancel", "outputs/copy"]) == 1
    assert not ended.exists()
    assert "copy; scancel 55 would end it" in refused(capsys)
    assert main(["cancel", "outputs"]) == 1
    assert (ended.read_text(), capsys.readouterr().out) == ("--name=llmexp-main-1 55\n", "cancelled: job 55\n")


@pytest.mark.parametrize(
    "name", ["llmexp-main-1", "../../../outputs/main/slurm/llmexp-main-1", "{mine}/slurm/llmexp-main-1"]
)
def test_no_name_leads_to_the_jobs_of_another_sweep(name, sweep, cluster, capsys, here: Path) -> None:
    mine = sweep("outputs/main")
    name = name.format(mine=mine)
    sweep("theirs/main", {"job": "55", "name": name})
    ended = cluster(script_of(mine, "llmexp-main-1"), name)
    assert main(["cancel", "theirs"]) == 1
    assert not ended.exists()
    refused(capsys)


@pytest.mark.parametrize("link", ["slurm", "jobs.jsonl", "sweep", "run"])
def test_a_link_in_a_foreign_folder_does_not_lead_to_my_jobs(link, sweep, cluster, capsys, here: Path) -> None:
    mine = sweep("outputs/main", {"job": "55", "name": "llmexp-main-1"})
    ended, theirs = cluster(script_of(mine, "llmexp-main-1"), "llmexp-main-1"), here / "theirs" / "main"
    theirs.parent.mkdir()
    if link == "sweep":
        theirs.symlink_to(mine)
    else:
        sweep("theirs/main")
        there = {"slurm": slurm_folder(theirs), "jobs.jsonl": slurm_folder(theirs) / "jobs.jsonl", "run": theirs / RUN}[
            link
        ]
        shutil.rmtree(there) if there.is_dir() else there.unlink()
        there.symlink_to(mine / there.relative_to(theirs))
    assert main(["cancel", "theirs"]) == 1
    assert not ended.exists()
    refused(capsys)


def test_outputs_that_lie_elsewhere_by_a_link_are_ones_own(sweep, cluster, capsys, here: Path) -> None:
    mine = sweep("scratch/outputs/main", {"job": "55", "name": "llmexp-main-1"})
    (here / "outputs").symlink_to(here / "scratch" / "outputs")
    ended = cluster(script_of(here / "outputs" / "main", "llmexp-main-1"), "llmexp-main-1")
    assert main(["cancel", str(mine)]) == 0
    assert main(["cancel", "outputs"]) == 0
    assert ended.read_text() == "--name=llmexp-main-1 55\n" * 2


@pytest.mark.parametrize(
    "line",
    [
        {"job": 55, "name": "train"},
        {"job": ["5"], "name": "train"},
        {"name": ["train"], "task": None},
        {"job": "5", "name": 5},
    ],
)
def test_what_is_no_jobs_number_or_name_is_told_in_a_line(line, sweep, cluster, capsys) -> None:
    sweep("theirs/main", line)
    ended = cluster("")
    assert main(["cancel", "theirs"]) == 1
    assert not ended.exists()
    assert "jobs.jsonl is not a list of jobs" in refused(capsys)


@pytest.mark.parametrize("reason", ["BadConstraints", "launch failed requeued held"])
def test_who_waits_for_a_copied_sweep_ends_and_releases_nothing_of_the_original(
    reason, sweep, cluster, here: Path
) -> None:
    mine = sweep("outputs/main", {"job": "55", "name": "llmexp-main-1"})
    ended = cluster(script_of(mine, "llmexp-main-1"), "llmexp-main-1", state=f"PENDING|{reason}")
    shutil.copytree(mine, here / "outputs" / "copy")
    follow(submissions([RunFolder(here / "outputs" / "copy" / RUN)]), read_options({"poll_s": 0.1}), lambda runs: None)
    assert not ended.exists()
    assert RunFolder(mine / RUN).state() == "planned"
