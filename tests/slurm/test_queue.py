from __future__ import annotations

import pytest

from llmexp.errors import ConfigError, SlurmError
from llmexp.slurm.queue import JobState, QueuedJob, arrays_of, check_slurm, max_array_size, states


def test_states_of_queued_running_ended_and_forgotten_jobs(commands):
    squeue = (
        'case "$*" in *--jobs=7,9,12*) '
        'printf "7_0|RUNNING|None|n1|a\\n7_1|PENDING|Resources||a\\n9|FAILED|NonZeroExitCode|n2|b|b\\n";; esac'
    )
    commands(squeue=squeue, sacct="exit 1")
    jobs = QueuedJob("7_0", "a"), QueuedJob("7_1", "a"), QueuedJob("9", "b|b"), QueuedJob("12", "c")
    found = states(jobs)
    assert [str(found[job]) for job in jobs] == ["RUNNING (n1)", "PENDING (Resources)", "FAILED (n2)", "forgotten"]
    assert [found[job].has_ended for job in jobs] == [False, False, True, True]


def test_accounting_tells_what_the_controller_forgot(commands):
    commands(
        squeue='echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1',
        sacct='echo "5_1|CANCELLED by 0|None assigned|a"',
    )
    assert states([QueuedJob("5_1", "a")]) == {QueuedJob("5_1", "a"): JobState("CANCELLED")}


def test_what_accounting_takes_for_running_is_forgotten_all_the_same(commands):
    commands(squeue="true", sacct='printf "5|PREEMPTED|n1|a\\n5|RUNNING|n1|a\\n"')
    assert states([QueuedJob("5", "a")])[QueuedJob("5", "a")].name == "forgotten"


def test_another_job_of_the_same_number_is_not_ours(commands):
    commands(
        squeue='echo "5|PENDING|launch failed requeued held||theirs"',
        sacct='printf "5|CANCELLED|n1|ours\\n5|FAILED|n2|theirs\\n"',
    )
    ours, forgotten = QueuedJob("5", "ours"), QueuedJob("5", "older")
    assert states([ours, forgotten]) == {ours: JobState("CANCELLED", nodes="n1"), forgotten: JobState("forgotten")}


def test_a_controller_that_is_away_is_an_error_with_its_words(commands):
    commands(squeue='echo "slurm_load_jobs error: Unable to contact slurm controller (connect failure)" >&2; exit 1')
    with pytest.raises(SlurmError, match=r"^squeue: .*Unable to contact slurm controller"):
        states([QueuedJob("5", "a")])


def test_the_numbers_of_submissions_by_their_names(commands):
    commands(squeue='case "$*" in *--name=a,b,c*) printf "7_0|a\n7_1|a\n9|b\n";; *) exit 1;; esac')
    assert arrays_of(["a", "a", "b", "c"]) == {"a": "7", "b": "9"}
    assert arrays_of([]) == {}


def test_no_job_asks_nobody(commands):
    commands(squeue="exit 1")
    assert states([]) == {}


@pytest.mark.parametrize("reason", ["BadConstraints", "launch failed requeued held"])
def test_a_job_that_would_wait_for_ever_is_hopeless(reason):
    assert JobState("PENDING", reason).is_hopeless
    assert not JobState("PENDING", "Priority").is_hopeless


@pytest.mark.parametrize(
    "reason", ["PartitionConfig", "PartitionTimeLimit", "QOSMaxWallDurationPerJobLimit", "QOSMinGRES"]
)
def test_a_job_that_asks_for_too_much_is_unplaceable(reason):
    assert JobState("PENDING", reason).is_unplaceable


@pytest.mark.parametrize(
    "reason", ["Resources", "Priority", "QOSMaxJobsPerUserLimit", "AssocGrpCpuLimit", "JobArrayTaskLimit", "BeginTime"]
)
def test_a_job_that_waits_for_its_turn_is_not(reason):
    assert not JobState("PENDING", reason).is_unplaceable


def test_the_longest_array_is_the_clusters(commands):
    commands(scontrol='echo "MaxArraySize            = 1001"')
    assert max_array_size() == 1000


def test_a_machine_without_slurm_is_told_in_one_line(commands):
    commands(squeue="true", scancel="true")
    with pytest.raises(ConfigError, match="there is no sbatch, srun here; go to the cluster's login node"):
        check_slurm()
