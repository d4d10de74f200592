"""Sleep until a repeat ends; end it where it takes too long, makes no progress or exhausts the host's memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from llmexp.launch.attempt import check_still_mine
from llmexp.launch.early_end import early_end
from llmexp.launch.ending import Ending
from llmexp.launch.follow import Silence
from llmexp.launch.host_memory import HostMemory
from llmexp.launch.nodes.group import Group
from llmexp.launch.spawn import Agent
from llmexp.record.duration import limit
from llmexp.record.folder import RunFolder
from llmexp.record.result import RunStatus
from llmexp.schema import MeasureConfig

# Each tick costs about a millisecond beside the measured ranks.
TICK_S = 0.5
STACKS_S = 1.0


@dataclass(frozen=True)
class Limits:
    """The limits of a whole run, counted from `started_s` (time.monotonic)."""

    measure: MeasureConfig
    started_s: float

    def reached(self, silence: Silence) -> Ending | None:
        """Return the ending for the limit that is reached, or None."""
        measure = self.measure
        if time.monotonic() - self.started_s > measure.timeout_s:
            return Ending(
                RunStatus.TIMEOUT, f"the run took longer than {limit('measure.timeout_s', measure.timeout_s)}"
            )
        if silence.seconds() > measure.no_progress_timeout_s:
            told = limit("measure.no_progress_timeout_s", measure.no_progress_timeout_s)
            return Ending(RunStatus.TIMEOUT, f"no rank wrote a sample or a line of its log for {told}")
        return None


def watch(agent: Agent | Group, repeat: Path, limits: Limits, tick: Callable[[], None]) -> Ending | None:
    """Return None when the agent has ended by itself, else the ending for which its ranks must be stopped.

    Where a limit is reached, the ranks are first asked for their stacks. Raises RunLostError where another
    driver has taken the run from this one.
    """
    silence, memory = Silence(repeat), HostMemory()
    while not agent.ends_within(TICK_S):
        tick()
        check_still_mine(RunFolder(repeat.parent))
        if exhausted := memory.exhausted(lambda: processes_of(repeat)):
            return exhausted
        if early := early_end(repeat):
            return early
        if reached := limits.reached(silence):
            agent.ask_for_stacks(RunFolder(repeat.parent).rank_processes())
            agent.ends_within(STACKS_S)
            return reached
    tick()
    return None


def processes_of(repeat: Path) -> set[psutil.Process]:
    """Return all processes that the run started, also those that a container's daemon started."""
    return {*psutil.Process().children(recursive=True), *RunFolder(repeat.parent).rank_processes()}
