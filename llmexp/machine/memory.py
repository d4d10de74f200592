"""The host's memory: how much processes here may have and can still take, and whether the kernel kills, stalls or swaps for want of it.

What only Linux tells is unknown elsewhere: control groups limit nothing there, and nothing is killed.
"""

from __future__ import annotations

from collections.abc import Iterator
from mmap import PAGESIZE
from pathlib import Path

import psutil

from llmexp.machine.kernel_files import lines

ROOT = Path("/sys/fs/cgroup")
PRESSURE, COUNTERS = Path("/proc/pressure/memory"), Path("/proc/vmstat")
# Of version 2 and 1: the files of a group's limit and use, and the name in memory.stat of what the kernel drops first.
VERSIONS = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def machine_memory_bytes() -> int:
    """Return the memory that the machine has, whatever of it is ours."""
    return psutil.virtual_memory().total


def available_memory_bytes() -> int:
    """Return what the machine can free, whatever of it is ours."""
    return psutil.virtual_memory().available


def used_memory_bytes() -> int:
    """Return what the machine's processes hold."""
    return psutil.virtual_memory().used


def host_memory_bytes() -> int:
    """Return what processes here can have at most: the machine's memory, or the smallest limit of the control groups around this one."""
    return min([machine_memory_bytes(), *_limits()])


def host_memory_left_bytes() -> int:
    """Return what processes here can still take: what the machine can free, or what the groups around this one allow beyond what they use."""
    return min([available_memory_bytes(), *_left_to_groups()])


def oom_kills() -> int:
    """Return a count that grows when the kernel kills a process for want of memory."""
    files = [COUNTERS, *(group / "memory.events" for group in groups())]
    counts = (line.split() for path in files for line in lines(path))
    return sum(int(value) for name, value in counts if name == "oom_kill")


def stalled_share() -> float | None:
    """Return in which share of the last ten seconds all processes waited for memory; None where the kernel does not say.

    It is the kernel's `full avg10`, in percent there.
    """
    full = [line.split()[1] for line in lines(PRESSURE) if line.startswith("full ")]
    return float(full[0].partition("=")[2]) / 100 if full else None


def swapped_bytes() -> tuple[int, int]:
    """Return what was swapped in and out since the machine started."""
    pages = dict(line.split() for line in lines(COUNTERS) if line.startswith("pswp"))
    return PAGESIZE * int(pages.get("pswpin", 0)), PAGESIZE * int(pages.get("pswpout", 0))


def groups() -> Iterator[Path]:
    """Yield this process's memory control groups, version 2 and 1, from the inmost outwards."""
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
    """Yield a limit less what is used; cached files that nobody reads count as free."""
    total_bytes = machine_memory_bytes()
    for group in groups():
        for limit, usage, cached in VERSIONS:
            limits = [int(line) for line in lines(group / limit) if line.isdigit() and int(line) < total_bytes]
            if limits:
                used = sum(int(line) for line in lines(group / usage))
                stat = dict(line.split() for line in lines(group / "memory.stat"))
                yield limits[0] - used + int(stat.get(cached, 0))
