from __future__ import annotations

import pytest

from llmexp.errors import ConfigError, SlurmError
from llmexp.slurm.queue import JobState, check_slurm, max_array_size, states


def test_states_of_queued_running_ended_and_forgotten_jobs(commands):
    squeue = 'case "$*" in *--jobs=7,9,12*) printf "7_0|RUNNING|None|n1\\n7_1|PENDING|Resources|\\n9|FAILED|NonZeroExitCode|n2\\n";; esac'
    commands(squeue=squeue, sacct="exit 1")
    found = states(["7_0", "7_1", "9", "12"])
    assert {job: str(state) for job, state in found.items()} == {
        "7_0": "RUNNING (n1)",
        "7_1": "PENDING (Resources)",
        "9": "FAILED (n2)",
        "12": "forgotten",
    }
    assert [found[job].has_ended for job in ("7_0", "7_1", "9", "12")] == [False, False, True, True]


def test_accounting_tells_what_the_controller_forgot(commands):
    commands(squeue='echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1', sacct='echo "5_1|CANCELLED by 0|None assigned"')
    assert states(["5_1"]) == {"5_1": JobState("CANCELLED")}


def test_what_accounting_takes_for_running_is_forgotten_all_the_same(commands):
    commands(squeue="true", sacct='echo "5|RUNNING|n1"')
    assert states(["5"])["5"].has_ended


def test_a_controller_that_is_away_is_an_error_with_its_words(commands):
    commands(squeue='echo "slurm_load_jobs error: Unable to contact slurm controller (connect failure)" >&2; exit 1')
    with pytest.raises(SlurmError, match=r"^squeue: .*Unable to contact slurm controller"):
        states(["5"])


def test_no_job_asks_nobody(commands):
    commands(squeue="exit 1")
    assert states([]) == {}


@pytest.mark.parametrize("reason", ["BadConstraints", "launch failed requeued held"])
def test_a_job_that_would_wait_for_ever_is_hopeless(reason):
    assert JobState("PENDING", reason).is_hopeless
    assert not JobState("PENDING", "Priority").is_hopeless


def test_the_longest_array_is_the_clusters(commands):
    commands(scontrol='echo "MaxArraySize            = 1001"')
    assert max_array_size() == 1000


def test_a_machine_without_slurm_is_told_in_one_line(commands):
    commands(squeue="true", scancel="true")
    with pytest.raises(ConfigError, match="there is no sbatch, srun here; go to the cluster's login node"):
        check_slurm()
