"""A sweep whose runs are jobs of a real SLURM.

It adds the faults of the controller, the accounting, a node and a job.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from chaos.cluster import Cluster, QueuedJob
from chaos.cluster_files import NODES
from chaos.driver import HERE, Driver, Place
from chaos.episode import Episode
from chaos.faults import FAULTS, Fault, Heal, MissedError
from chaos.surroundings import IDLE_S
from llmexp.record.folder import find_runs
from llmexp.slurm.queue import LAUNCH_FAILED

# Without a word of its runs. This allows for a controller that is down, and for jobs that are requeued.
JOBS_IDLE_S = 2 * IDLE_S


@dataclass(kw_only=True)
class SlurmEpisode(Episode):
    """An episode on a cluster; a killed driver leaves its jobs, which then end by themselves."""

    cluster: Cluster
    further_words: tuple[str, ...] = (
        "hydra/launcher=slurm",
        "hydra.launcher.poll_s=1",
        f"hydra.launcher.patience_s={IDLE_S:g}",
    )

    @property
    def possible(self) -> Mapping[str, Fault]:
        """The faults of any host, and those of a cluster."""
        return {**FAULTS, **_of(self.cluster, self._jobs)}

    @property
    def place(self) -> Place:
        """The place where the cluster's commands are."""
        return HERE

    def _under_way(self) -> Collection[Hashable]:
        return [job.number for job in self._jobs()]

    def _ending_of(self, driver: Driver) -> int | None:
        silence = self._silence()
        while (code := driver.ends_within(1)) is None and next(silence) < JOBS_IDLE_S:
            self.cluster.hurry()
        return code

    def _pause(self) -> None:
        super()._pause()
        self.cluster.hurry()

    def _await_the_rest(self) -> None:
        silence = self._silence()
        while (left := self._going()) and next(silence) < JOBS_IDLE_S:
            self.cluster.hurry()
            time.sleep(0.5)
        if left:
            self._lose(f"jobs do not end: {left}")
            self.cluster.run("scancel", *(job.number for job in left))

    def _silence(self) -> Iterator[float]:
        """Yield at each look for how many seconds no run of the sweep has changed its state."""
        known, since_s = None, time.monotonic()
        while True:
            states = {run.path: (run.state(), len(run.repeats())) for run in find_runs(self.sweep)}
            if states != known:
                known, since_s = states, time.monotonic()
            yield time.monotonic() - since_s

    def _going(self) -> list[QueuedJob]:
        """Return the jobs that go on by themselves: the next driver has to take up the others."""
        return [job for job in self._jobs() if job.reason != LAUNCH_FAILED]

    def _jobs(self) -> list[QueuedJob]:
        """Return the sweep's jobs that have not ended."""
        return [job for job in self.cluster.jobs() if job.name.startswith(f"llmexp-{self.name}-")]


def _of(cluster: Cluster, jobs: Callable[[], Sequence[QueuedJob]]) -> dict[str, Fault]:
    """Return the faults of a cluster; `jobs` gives the sweep's jobs on it."""
    return {
        "controller killed": _killed(cluster, "slurmctld", cluster.start_controller),
        "controller stopped": _stopped(cluster),
        "controller hangs": _hangs(cluster),
        "accounting killed": _killed(cluster, "slurmdbd", cluster.start_accounting),
        **{f"node {node} lost": _killed(cluster, node, partial(cluster.start_node, node)) for node in NODES},
        "job cancelled": _to_a_job(cluster, jobs, ("PENDING", "RUNNING"), "scancel"),
        "job queued again": _to_a_job(cluster, jobs, ("RUNNING",), "scontrol", "requeue"),
    }


def _killed(cluster: Cluster, daemon: str, start: Heal) -> Fault:
    def inject(episode: Episode) -> Heal:
        cluster.kill(daemon)
        return start

    return inject


def _stopped(cluster: Cluster) -> Fault:
    def inject(episode: Episode) -> Heal:
        cluster.stop_controller()
        return cluster.start_controller

    return inject


def _hangs(cluster: Cluster) -> Fault:
    def inject(episode: Episode) -> Heal:
        cluster.send("slurmctld", signal.SIGSTOP)
        return partial(cluster.send, "slurmctld", signal.SIGCONT)

    return inject


def _to_a_job(
    cluster: Cluster, jobs: Callable[[], Sequence[QueuedJob]], states: Collection[str], *command: str
) -> Fault:
    def inject(episode: Episode) -> None:
        possible = [job.number for job in jobs() if job.state in states]
        if not possible:
            raise MissedError
        try:
            cluster.run(*command, episode.random.choice(possible))
        except subprocess.CalledProcessError:  # the job has ended meanwhile
            raise MissedError from None

    return inject
