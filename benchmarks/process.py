"""The cost of a command: its own CPU time, that of all it started, and its wall time (Linux).

It also says what the rest of the machine did meanwhile.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True)
class Cost:
    """Seconds and bytes of a command.

    `all_cpu_s` counts every process that was waited for, `others_cores` the cores that other programs used, on average.
    """

    own_cpu_s: float
    all_cpu_s: float
    wall_s: float
    others_cores: float
    peak_rss_bytes: int


def cost_of(command: Sequence[str], folder: Path, beside: Callable[[], None] = lambda: None) -> Cost:
    """Run a command in a folder to its end, and `beside` while it runs; raise RuntimeError where it fails."""
    machine_s, start_s = _busy_s(), time.perf_counter()
    with (folder / "output.txt").open("w") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output)
    beside()
    # The process has ended but is not reaped yet: only now the kernel tells its own time apart from its children's.
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    wall_s, machine_s = time.perf_counter() - start_s, _busy_s() - machine_s
    times = psutil.Process(process.pid).cpu_times()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{(folder / 'output.txt').read_text()[-4000:]}")
    own_s = times.user + times.system
    all_s = own_s + times.children_user + times.children_system
    return Cost(own_s, all_s, wall_s, max(0.0, (machine_s - all_s) / wall_s), usage.ru_maxrss * 1024)


def _busy_s() -> float:
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system)
