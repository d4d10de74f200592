"""Jobs of runs that start from the model of another run of their sweep."""

from __future__ import annotations

import pytest
from patience import HANG_S

pytestmark = pytest.mark.slurm


def chain(first: str) -> str:
    """A run that behaves so and saves its model, and one that starts from that."""
    made = f"{{task:pretrain,model:tiny,task.save_model:true,sweep.run_name:made,engine.options.behavior:{first}}}"
    return f"hydra.sweeper.cells=[{{task:finetune,model:'@made',data:synthetic,engine.options.behavior:well}},{made}]"


def reason(cluster, job: str) -> str:
    """Why SLURM lets a job wait."""
    return cluster.run("squeue", "--noheader", "--array", f"--jobs={job}", "--format=%r").strip()


def test_a_run_waits_for_the_end_of_the_one_that_it_starts_from(shell, cluster, until):
    driver = shell.start(chain("well_when_released"))
    until(lambda: shell.samples("well_when_released") and shell.has_job("well"))
    until(lambda: reason(cluster, shell.job("well")) == "Dependency")
    again = shell.llmexp(*shell.WORDS, chain("well_when_released"), "hydra.launcher.detach=true")
    assert "2 under way already" in again.stdout
    (shell.folder / "outputs" / "main" / "released").touch()
    out, err = driver.communicate(timeout=HANG_S)
    assert driver.returncode == 0, out + err
    made = shell.run("well_when_released").result()
    assert (made.status, shell.result("well").status) == ("success", "success")
    assert shell.result("well").started_from != ""
    assert shell.result("well").started_at > made.ended_at


def test_after_a_failure_the_job_of_the_next_run_says_why_it_is_skipped(shell):
    done = shell.llmexp(*shell.WORDS, chain("broken"))
    assert done.returncode == 1
    made, left = shell.run("broken"), shell.result("well")
    assert (left.status, left.skip) == ("skipped", "source")
    assert left.reason.startswith(f"model=@made: outputs/main/{made.path.name} ended failed: the launcher ended")
    assert "skipped: model=@made" in done.stderr
