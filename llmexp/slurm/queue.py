"""SLURM's own commands: ask for the state of jobs, cancel and release them."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from llmexp.errors import ConfigError, SlurmError

COMMANDS = ("sbatch", "srun", "squeue", "scancel")
# A job that is seen in one of these states does not run again.
ENDED = (
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "REVOKED",
    "TIMEOUT",
)
# Reasons for which a queued job stays queued until a person acts.
LAUNCH_FAILED = "launch failed requeued held"
HOPELESS = ("BadConstraints", "DependencyNeverSatisfied", LAUNCH_FAILED, "job requeued in held state")
# Reasons that do not change when other jobs end, but only by an administrator or the user who submitted.
UNPLACEABLE = re.compile(
    r"PartitionConfig|PartitionNodeLimit|PartitionTimeLimit|PartitionDown|PartitionInactive|ReservationDeleted"
    r"|Invalid(Account|QOS)|AccountNotAllowed|QOSNotAllowed|(QOS|Assoc)(Max\w*PerJob(Limit)?|Min\w+)"
)
FORGOTTEN = "forgotten"
_ANSWERS_WITHIN_S = 120


@dataclass(frozen=True)
class QueuedJob:
    """A job by its number and its submission's unique name.

    The name is needed because a controller that lost its latest state gives numbers out again.
    """

    number: str
    name: str

    @property
    def array(self) -> str:
        """The number that the jobs of one array share."""
        return self.number.partition("_")[0]

    def __str__(self) -> str:
        return self.number


@dataclass(frozen=True)
class JobState:
    """The state of one job; `name` is SLURM's own word, or 'forgotten' where SLURM no longer knows the job."""

    name: str
    reason: str = ""
    nodes: str = ""

    @property
    def has_ended(self) -> bool:
        """Say whether SLURM will do nothing more with the job."""
        return self.name in ENDED or self.name == FORGOTTEN

    @property
    def is_hopeless(self) -> bool:
        """Say whether the job waits for something that does not happen by itself."""
        return not self.has_ended and self.reason in HOPELESS

    @property
    def is_unplaceable(self) -> bool:
        """Say whether only a change of the job's request or of the cluster's limits would let it start."""
        return self.name == "PENDING" and UNPLACEABLE.fullmatch(self.reason) is not None

    def __str__(self) -> str:
        told = self.nodes or ("" if self.reason == "None" else self.reason)
        return f"{self.name} ({told})" if told else self.name


def has_slurm() -> bool:
    """Say whether SLURM's commands are installed."""
    return all(shutil.which(name) for name in COMMANDS)


def check_slurm() -> None:
    """Raise ConfigError where this machine cannot submit jobs."""
    missing = [name for name in COMMANDS if not shutil.which(name)]
    if missing:
        raise ConfigError(
            f"SLURM: there is no {', '.join(missing)} here; go to the cluster's login node, or load its slurm module"
        )


def cores_a_gpu(partition: str | None) -> list[int]:
    """Return the logical cores that each kind of node with GPUs has for each of them; empty where sinfo tells none.

    Of the partition, or of all.
    """
    if not shutil.which("sinfo"):
        return []
    done = _run("sinfo", "--noheader", "--format=%c %G", *([f"--partition={partition}"] if partition else []))
    found = re.findall(r"^(\d+)\+? \S*\bgpu(?::[\w.-]*[A-Za-z_][\w.-]*)?:(\d+)", done.stdout, re.MULTILINE)
    return sorted({int(cores) // int(gpus) for cores, gpus in found if int(gpus)})


def states(jobs: Iterable[QueuedJob]) -> dict[QueuedJob, JobState]:
    """Return the state of each job; raises SlurmError where the controller does not answer.

    Where there is accounting, it gives the state of jobs that the controller forgot.
    """
    wanted = list(jobs)
    if not wanted:
        return {}
    found = _squeue(wanted)
    gone = [job for job in wanted if job not in found]
    return {job: found.get(job, JobState(FORGOTTEN)) for job in wanted} | _sacct(gone)


def arrays_of(names: Iterable[str]) -> dict[str, str]:
    """Return the array number of each submission that SLURM knows, by the submission's name; raises SlurmError."""
    wanted = ",".join(dict.fromkeys(names))
    done = _run("squeue", "--noheader", "--states=all", f"--name={wanted}", "--format=%i|%j") if wanted else None
    if done and done.returncode:
        raise SlurmError(f"squeue: {_first_line(done.stderr)}")
    rows = (line.strip().split("|", 1) for line in (done.stdout.splitlines() if done else ()))
    return {name: number.partition("_")[0] for number, name in rows}


def scripts_of(jobs: Iterable[QueuedJob]) -> dict[str, str]:
    """Return the script of each job that SLURM knows, by the job's number; raises SlurmError.

    The job's owner cannot change this record.
    """
    wanted = list(jobs)
    if not wanted:
        return {}
    done = _run("squeue", "--noheader", "--array", "--states=all", f"--jobs={_arrays(wanted)}", "--format=%i|%o")
    if done.returncode and "Invalid job id" not in done.stderr:
        raise SlurmError(f"squeue: {_first_line(done.stderr)}")
    return {number: script for number, _, script in (line.strip().partition("|") for line in done.stdout.splitlines())}


def cancel(jobs: Sequence[QueuedJob]) -> None:
    """Cancel jobs, queued or running; raises SlurmError where SLURM refuses."""
    for name in dict.fromkeys(job.name for job in jobs):
        done = _run("scancel", f"--name={name}", *(job.number for job in jobs if job.name == name))
        if done.returncode:
            raise SlurmError(f"scancel: {_first_line(done.stderr)}")


def release(job: QueuedJob) -> bool:
    """Release a held job, so that it can be placed again; return False where SLURM refuses."""
    return _run("scontrol", "release", job.number).returncode == 0


def max_array_size() -> int | None:
    """Return the length of the longest array that the cluster accepts; None where it does not say."""
    for line in _run("scontrol", "show", "config").stdout.splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "MaxArraySize" and value.strip().isdigit():
            return max(1, int(value) - 1)
    return None


def _squeue(jobs: list[QueuedJob]) -> dict[QueuedJob, JobState]:
    """Return the state of jobs in the queue or ended recently; a job that is missing is not an error."""
    done = _run("squeue", "--noheader", "--array", "--states=all", f"--jobs={_arrays(jobs)}", "--format=%i|%T|%r|%N|%j")
    if done.returncode and "Invalid job id" not in done.stderr:
        raise SlurmError(f"squeue: {_first_line(done.stderr)}")
    rows = (line.strip().split("|", 4) for line in done.stdout.splitlines())
    return {QueuedJob(number, name): JobState(state, reason, nodes) for number, state, reason, nodes, name in rows}


def _sacct(jobs: list[QueuedJob]) -> dict[QueuedJob, JobState]:
    """Return how forgotten jobs ended, from the accounting; empty where there is none.

    The last of a job's attempts counts.
    """
    if not jobs or not shutil.which("sacct"):
        return {}
    numbers = ",".join(map(str, jobs))
    done = _run(
        "sacct",
        "--noheader",
        "--allocations",
        "--duplicates",
        "--parsable2",
        f"--jobs={numbers}",
        "--format=JobID,State,NodeList,JobName",
    )
    rows = (line.strip().split("|", 3) for line in done.stdout.splitlines())
    ended = {
        QueuedJob(number, name): JobState(state.partition(" ")[0], nodes=nodes.replace("None assigned", ""))
        for number, state, nodes, name in rows
    }
    return {job: state for job, state in ended.items() if job in jobs and state.has_ended}


def _arrays(jobs: Iterable[QueuedJob]) -> str:
    """Return the array numbers of the jobs, each one once, separated by commas."""
    return ",".join(dict.fromkeys(job.array for job in jobs))


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=_ANSWERS_WITHIN_S, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SlurmError(f"{command[0]}: {error}") from None


def _first_line(text: str) -> str:
    return next(iter(text.strip().splitlines()), "no answer")
