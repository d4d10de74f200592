"""Wait for a repeat to end, asleep, and end it where it takes too long or stands still."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from llmexp.launch.follow import Silence
from llmexp.launch.group import Group
from llmexp.launch.spawn import Agent
from llmexp.record.folder import RunFolder
from llmexp.schema import MeasureConfig

# Each tick costs about a millisecond beside the measured ranks.
TICK_S = 0.5
STACKS_S = 1.0


@dataclass(frozen=True)
class Limits:
    """The limits of a whole run, counted from `started_s` (time.monotonic)."""

    measure: MeasureConfig
    started_s: float

    def reached(self, silence: Silence) -> str | None:
        """Name the limit that is reached, or None."""
        if time.monotonic() - self.started_s > self.measure.timeout_s:
            return f"the run took longer than measure.timeout_s={self.measure.timeout_s:g}"
        if silence.seconds() > self.measure.no_progress_timeout_s:
            return f"no rank wrote a sample or a line of its log for measure.no_progress_timeout_s={self.measure.no_progress_timeout_s:g}"
        return None


def watch(agent: Agent | Group, repeat: Path, limits: Limits, tick: Callable[[], None]) -> str | None:
    """Return None when the agent has ended by itself, or the limit for which its ranks were asked for their stacks and must be stopped."""
    silence = Silence(repeat)
    while not agent.ends_within(TICK_S):
        tick()
        reached = limits.reached(silence)
        if reached:
            agent.ask_for_stacks(RunFolder(repeat.parent).rank_processes())
            agent.ends_within(STACKS_S)
            return reached
    tick()
    return None
