"""Ties between processes that hold even when one of them is killed without warning (Linux; elsewhere nothing happens)."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

# Numbers of prctl(2), linux/prctl.h.
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

# By this variable the first rank is told the file descriptor of the socket on which it serves the store of all.
STORE_FD = "LLMEXP_STORE_FD"


def die_with_parent() -> None:
    """Let the kernel kill this process when the one that started it ends, however it ends."""
    parent = os.getppid()
    if _prctl(PR_SET_PDEATHSIG, signal.SIGKILL) and os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends, so that none gets out of sight."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> bool:
    if sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)
