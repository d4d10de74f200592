"""How tests wait for processes: by what these do, never by a clock that a busy machine outruns."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from llmexp.machine.standstill import StandstillWatch

# Only a hang takes so long, whatever else the machine does.
HANG_S = 1800.0
IDLE_S = 120.0


def until(holds: Callable[[], object], every_s: float = 0.02) -> None:
    """Wait until something holds; fail where all that this process has started stands still, or goes on for ever."""
    watch, deadline_s = StandstillWatch(os.getpid(), IDLE_S, only_below=True), time.monotonic() + HANG_S
    while not holds():
        assert not watch.stands_still(), f"nothing works any more, and it does not hold: {holds}"
        assert time.monotonic() < deadline_s, f"it still does not hold: {holds}"
        time.sleep(every_s)
