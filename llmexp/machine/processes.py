"""What the kernel tells of processes: which boot and namespace their numbers are of, and of each when it began, what it holds and handles."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import psutil

BOOT = Path("/proc/sys/kernel/random/boot_id")
# Of /proc/<pid>/stat after the name in brackets, which may hold blanks: field 22, in clock ticks since the machine started.
_START_TICKS = 19


def kernel() -> dict[str, Any]:
    """Return this boot of this machine, and the namespace that process numbers are of; empty where the kernel does not tell (not Linux)."""
    try:
        return {"boot_id": BOOT.read_text().strip(), "pid_namespace": os.stat("/proc/self/ns/pid").st_ino}
    except OSError:
        return {}


def start_ticks(pid: int) -> int | None:
    """Return when a process began, in clock ticks since the machine started; None where there is none, or the kernel does not tell."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[_START_TICKS])
    except (OSError, IndexError):
        return None


def started_at_s(pid: int) -> float:
    """Return when a process began, by the clock; raises psutil.NoSuchProcess."""
    return psutil.Process(pid).create_time()


def is_zombie(pid: int) -> bool:
    """Return whether a process has ended, waited for or not."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def held_bytes(process: psutil.Process) -> int:
    """Return the memory that a process holds; 0 where it has ended or is not ours to ask."""
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def handles(pid: int, number: signal.Signals) -> bool:
    """Return whether a process has a handler for a signal, where the kernel says so (Linux)."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (number - 1) & 1)
