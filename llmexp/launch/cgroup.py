"""What the kernel allows this process's control group, and whether it has killed for memory (Linux; elsewhere: nothing known)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil

ROOT = Path("/sys/fs/cgroup")


def host_memory_bytes() -> int:
    """Memory that processes here can have at most: the machine's, or the smallest limit of the control groups around this one."""
    return min([psutil.virtual_memory().total, *_limits()])


def oom_kills() -> int:
    """A count that grows when the kernel kills a process for want of memory."""
    files = [Path("/proc/vmstat"), *(group / "memory.events" for group in _groups())]
    counts = (line.split() for path in files for line in _lines(path))
    return sum(int(value) for name, value in counts if name == "oom_kill")


def _limits() -> Iterator[int]:
    for group in _groups():
        for name in ("memory.max", "memory.limit_in_bytes"):
            yield from (int(line) for line in _lines(group / name) if line.isdigit())


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
