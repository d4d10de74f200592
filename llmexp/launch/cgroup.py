"""What the kernel allows this process's control group, and whether it has killed for memory (Linux; elsewhere: nothing known)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil

ROOT = Path("/sys/fs/cgroup")
# Of version 2 and 1: the files of a group's limit and use, and the name in memory.stat of what the kernel drops first.
VERSIONS = (("memory.max", "memory.current", "inactive_file"), ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"))


def host_memory_bytes() -> int:
    """Memory that processes here can have at most: the machine's, or the smallest limit of the control groups around this one."""
    return min([psutil.virtual_memory().total, *_limits()])


def host_memory_left_bytes() -> int:
    """Memory that processes here can still take: what the machine can free, or what the groups around this one allow beyond what they use."""
    return min([psutil.virtual_memory().available, *_left_to_groups()])


def oom_kills() -> int:
    """A count that grows when the kernel kills a process for want of memory."""
    files = [Path("/proc/vmstat"), *(group / "memory.events" for group in _groups())]
    counts = (line.split() for path in files for line in _lines(path))
    return sum(int(value) for name, value in counts if name == "oom_kill")


def _limits() -> Iterator[int]:
    for group in _groups():
        for name, _, _ in VERSIONS:
            yield from (int(line) for line in _lines(group / name) if line.isdigit())


def _left_to_groups() -> Iterator[int]:
    """A limit less what is used; cached files that nobody reads count as free."""
    total = psutil.virtual_memory().total
    for group in _groups():
        for limit, usage, cached in VERSIONS:
            limits = [int(line) for line in _lines(group / limit) if line.isdigit() and int(line) < total]
            if limits:
                used = sum(int(line) for line in _lines(group / usage))
                stat = dict(line.split() for line in _lines(group / "memory.stat"))
                yield limits[0] - used + int(stat.get(cached, 0))


def _groups() -> Iterator[Path]:
    """This process's memory control groups, version 2 and 1, from the inmost outwards."""
    for line in _lines(Path("/proc/self/cgroup")):
        _, controllers, name = line.split(":", 2)
        if controllers in ("", "memory"):
            top = ROOT / controllers
            inmost = top / name.lstrip("/")
            yield from (group for group in (inmost, *inmost.parents) if group.is_relative_to(top))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
