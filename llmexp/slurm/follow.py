"""Wait until all jobs have ended.

A run's own result counts first. SLURM is asked why a result is missing; the wait ends if SLURM stays silent too long.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from llmexp.errors import SlurmError
from llmexp.launch.display import say
from llmexp.record.duration import limit
from llmexp.record.result import RunResult
from llmexp.slurm.finalize import finalize_ended, is_final
from llmexp.slurm.jobs import Submitted
from llmexp.slurm.options import SlurmOptions
from llmexp.slurm.own import own
from llmexp.slurm.queue import LAUNCH_FAILED, JobState, QueuedJob, cancel, release, states

TICK_S = 0.5
# A result written on a node may take this long to be visible here.
GRACE_S = 5.0


@dataclass
class Followed:
    """A run that is waited for, and its last known state."""

    submitted: Submitted
    state: JobState | None = None
    is_done: bool = False
    settled_here: bool = False
    _told: str = ""
    _warned: str = ""
    _released: bool = False
    _written_ns: int = 0
    _ended_s: float | None = None

    def update(self, state: JobState | None) -> None:
        """Record a new result and SLURM's answer, where there is one; settle a run that ended without a result."""
        asked, self.state = state is not None, state or self.state
        if asked or self._is_written():
            self._tell(self.submitted.new_result())
            self.is_done = is_final(self.submitted, self.state)
        if self.is_done or self.state is None:
            return
        if self._is_let_go(self.state):
            self.state = None
        elif self.state.is_hopeless:
            cancel([run.job for run in own([self.submitted])])
            self._settle(self.state)
        elif not self.state.has_ended:
            self._ended_s = None
            self._warn(self.state)
        elif self._ended_s is None:
            self._ended_s = time.monotonic()
        elif time.monotonic() - self._ended_s > GRACE_S:
            self._settle(self.state)

    @property
    def has_answered(self) -> bool:
        """Say whether the job did its work: it measured, or found that an earlier result is still valid."""
        return self.submitted.new_result() is not None or (self.state is not None and self.state.name == "COMPLETED")

    def _settle(self, state: JobState) -> None:
        self.is_done = self.settled_here = True
        if not finalize_ended(self.submitted, state):
            say(
                f"{self.submitted.label} · job {self.submitted.job} is {state}, "
                "yet something is writing to its folder; see llmexp status later"
            )
        elif result := self.submitted.new_result():
            self._tell(result)
        else:
            say(
                f"{self.submitted.label} · job {self.submitted.job} is {state} "
                "and never reached the run; its earlier result stays"
            )

    def _is_let_go(self, state: JobState) -> bool:
        """Say whether a job that its node refused is queued again; this is done once, as SLURM drains such a node."""
        if state.reason != LAUNCH_FAILED or self._released:
            return False
        self._released = bool(own([self.submitted])) and release(self.submitted.job)
        if self._released:
            say(f"{self.submitted.label} · job {self.submitted.job} was refused by its node; queued again")
        return self._released

    def _warn(self, state: JobState) -> None:
        """Warn that the job may wait forever, once for each reason."""
        if state.is_unplaceable and state.reason != self._warned:
            self._warned = state.reason
            run = self.submitted
            say(
                f"{run.label} · job {run.job} cannot be scheduled as requested: {state.reason}; "
                f"llmexp cancel {run.folder.path} ends it"
            )

    def _is_written(self) -> bool:
        try:
            written_ns = self.submitted.folder.result_path.stat().st_mtime_ns
        except OSError:
            return False
        new, self._written_ns = written_ns != self._written_ns, written_ns
        return new

    def _tell(self, result: RunResult | None) -> None:
        """Say how the run ended, once for each ending: a preempted run ends again."""
        if result is None or result.ended_at == self._told:
            return
        self._told = result.ended_at
        ended = f"{result.status}: {result.reason}" if result.reason else f"{result.status}"
        say(
            f"{self.submitted.label} · {ended} · job {self.submitted.job}"
            f"{'' if result.status.is_answer else f' · {self.submitted.log}'}"
        )


@dataclass
class _Asking:
    """Asks SLURM from time to time, and tolerates its silence for a while."""

    options: SlurmOptions
    _next_s: float = 0.0
    _silent_since_s: float | None = None

    def ask(self, jobs: Iterable[QueuedJob]) -> dict[QueuedJob, JobState]:
        """Return the states if it is time to ask and SLURM answers, else an empty dict.

        Raises SlurmError once SLURM has been silent too long.
        """
        if time.monotonic() < self._next_s:
            return {}
        try:
            found = states(jobs)
        except SlurmError as error:
            found = {}
            self._bear(error)
        else:
            self._silent_since_s = None
        self._next_s = time.monotonic() + self.options.poll_s
        return found

    def _bear(self, error: SlurmError) -> None:
        if self._silent_since_s is None:
            self._silent_since_s = time.monotonic()
            say(f"SLURM does not answer ({error}); its jobs continue, and so does the waiting")
        elif time.monotonic() - self._silent_since_s > self.options.patience_s:
            told = limit("hydra.launcher.patience_s", self.options.patience_s)
            raise SlurmError(f"no answer from SLURM within {told} ({error}); see llmexp status later")


def follow(
    submitted: Sequence[Submitted], options: SlurmOptions, show: Callable[[Sequence[Followed]], None]
) -> list[Followed]:
    """Wait until every run is in its final state; raises SlurmError where SLURM stays silent."""
    runs = [Followed(one) for one in submitted]
    asking = _Asking(options)
    while left := [run for run in runs if not run.is_done]:
        found = asking.ask(run.submitted.job for run in left)
        for run in left:
            run.update(found.get(run.submitted.job))
        show(runs)
        if any(not run.is_done for run in runs):
            time.sleep(TICK_S)
    return runs
