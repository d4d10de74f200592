"""Links between processes that work even when one of them is killed (on Linux; elsewhere they do nothing)."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

# Option numbers of prctl(2), from linux/prctl.h.
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

# This variable tells the first rank the file descriptor of the socket on which it serves the store for all ranks.
STORE_FD = "LLMEXP_STORE_FD"


def die_with_parent() -> None:
    """Let the kernel kill this process when the one that started it ends, however it ends."""
    parent = os.getppid()
    if _prctl(PR_SET_PDEATHSIG, signal.SIGKILL) and os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends, so that no descendant is lost."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> bool:
    if sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)
