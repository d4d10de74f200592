"""The host's memory: how much processes here may use, and whether the kernel kills, stalls or swaps for lack of it.

Some answers come from Linux only. Other systems are taken to have no control groups and to kill no process.
"""

from __future__ import annotations

from collections.abc import Iterator
from mmap import PAGESIZE
from pathlib import Path

import psutil

from llmexp.machine.kernel_files import lines

ROOT = Path("/sys/fs/cgroup")
PRESSURE, COUNTERS = Path("/proc/pressure/memory"), Path("/proc/vmstat")
# For versions 2 and 1: the files with a group's limit and its use, and the name in memory.stat of the cached files
# that the kernel drops first.
VERSIONS = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def machine_memory_bytes() -> int:
    """Return the machine's whole memory, whatever part of it processes here may use."""
    return psutil.virtual_memory().total


def available_memory_bytes() -> int:
    """Return the memory that the machine can free, whatever part of it processes here may use."""
    return psutil.virtual_memory().available


def used_memory_bytes() -> int:
    """Return the memory that all processes of the machine hold."""
    return psutil.virtual_memory().used


def host_memory_bytes() -> int:
    """Return the most memory that processes here can have.

    It is the machine's memory, or the smallest limit of the control groups that this process is in.
    """
    return min([machine_memory_bytes(), *_limits()])


def host_memory_left_bytes() -> int:
    """Return the memory that processes here can still take.

    It is what the machine can free, or less where a control group of this process allows less beyond what it uses.
    """
    return min([available_memory_bytes(), *_left_to_groups()])


def oom_kills() -> int:
    """Return a count that grows whenever the kernel kills a process for lack of memory."""
    files = [COUNTERS, *(group / "memory.events" for group in groups())]
    counts = (line.split() for path in files for line in lines(path))
    return sum(int(value) for name, value in counts if name == "oom_kill")


def stalled_share() -> float | None:
    """Return the share of the last ten seconds in which all processes waited for memory; None where it is unknown.

    It is the kernel's `full avg10`, which is in percent.
    """
    full = [line.split()[1] for line in lines(PRESSURE) if line.startswith("full ")]
    return float(full[0].partition("=")[2]) / 100 if full else None


def swapped_bytes() -> tuple[int, int]:
    """Return the bytes swapped in and the bytes swapped out since the machine started."""
    pages = dict(line.split() for line in lines(COUNTERS) if line.startswith("pswp"))
    return PAGESIZE * int(pages.get("pswpin", 0)), PAGESIZE * int(pages.get("pswpout", 0))


def groups() -> Iterator[Path]:
    """Yield this process's memory control groups, of version 2 and 1, from the innermost outwards."""
    for line in lines(Path("/proc/self/cgroup")):
        _, controllers, name = line.split(":", 2)
        if controllers in ("", "memory"):
            top = ROOT / controllers
            inmost = top / name.lstrip("/")
            yield from (group for group in (inmost, *inmost.parents) if group.is_relative_to(top))


def _limits() -> Iterator[int]:
    for group in groups():
        for name, _, _ in VERSIONS:
            yield from (int(line) for line in lines(group / name) if line.isdigit())


def _left_to_groups() -> Iterator[int]:
    """Yield each group's limit minus its use; cached files that nobody reads count as free."""
    total_bytes = machine_memory_bytes()
    for group in groups():
        for limit, usage, cached in VERSIONS:
            limits = [int(line) for line in lines(group / limit) if line.isdigit() and int(line) < total_bytes]
            if limits:
                used = sum(int(line) for line in lines(group / usage))
                stat = dict(line.split() for line in lines(group / "memory.stat"))
                yield limits[0] - used + int(stat.get(cached, 0))
