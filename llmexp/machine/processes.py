"""The kernel's facts about processes: the boot and namespace of their ids, their start, memory and signal handlers."""

from __future__ import annotations

import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

import psutil

BOOT = Path("/proc/sys/kernel/random/boot_id")
# Field 22 of /proc/<pid>/stat, counted after the name in brackets, which may hold blanks; in clock ticks since the
# machine started.
_START_TICKS = 19


def kernel() -> dict[str, Any]:
    """Return the ids of this boot and of the namespace of process ids; empty where there are none (not Linux)."""
    try:
        return {"boot_id": BOOT.read_text().strip(), "pid_namespace": os.stat("/proc/self/ns/pid").st_ino}
    except OSError:
        return {}


def start_ticks(pid: int) -> int | None:
    """Return a process's start in clock ticks since the machine's; None where there is no process or no answer."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[_START_TICKS])
    except (OSError, IndexError):
        return None


def is_hidden(pid: int) -> bool:
    """Tell whether there is a process of another user that may not be looked at, as /proc with hidepid has it."""
    if start_ticks(pid) is None:
        try:
            os.kill(pid, 0)
        except PermissionError:
            return True
        except (ProcessLookupError, OverflowError, TypeError):
            pass  # a folder that somebody sent may name what no process can have
    return False


def started_at_s(pid: int) -> float:
    """Return a process's start in Unix time; raises psutil.NoSuchProcess."""
    return psutil.Process(pid).create_time()


def is_zombie(pid: int) -> bool:
    """Return whether a process has ended, whether or not its parent has waited for it."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def held_bytes(process: psutil.Process) -> int:
    """Return the resident memory of a process; 0 where it has ended or may not be asked."""
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def peak_rss_bytes() -> int:
    """Return the most resident memory that this process has had."""
    # ru_maxrss counts KiB on Linux, bytes on macOS.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def handles(pid: int, number: signal.Signals) -> bool:
    """Return whether a process has a handler for a signal; False where the kernel does not tell (not Linux)."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (number - 1) & 1)
