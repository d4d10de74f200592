"""Waits for the process's other threads."""

from __future__ import annotations

import threading
import time
from pathlib import Path

LIMIT_S, BETWEEN_LOOKS_S = 10.0, 0.001
_THREADS = Path("/proc/self/task")


def await_others_asleep(limit_s: float = LIMIT_S) -> bool:
    """Wait until no other thread of this process runs or is in line for a core (Linux), and tell whether that came.

    Threads that spin while they wait are never asleep: then it ends after `limit_s` seconds.
    """
    end_s = time.monotonic() + limit_s
    while any(map(_runs, _others())):
        if time.monotonic() > end_s:
            return False
        time.sleep(BETWEEN_LOOKS_S)
    return True


def _others() -> list[Path]:
    own = str(threading.get_native_id())
    return [thread for thread in _THREADS.iterdir() if thread.name != own] if _THREADS.exists() else []


def _runs(thread: Path) -> bool:
    try:
        # The name, in parentheses, may hold anything.
        return (thread / "stat").read_text().rpartition(")")[2].split()[0] == "R"
    except OSError:
        return False  # it has ended
