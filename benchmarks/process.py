"""The cost of a command: its own CPU time, that of all it started, and its wall time (Linux).

It also says what the rest of the machine did meanwhile.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

SPAWNED = (sys.executable, "-I", "-S", str(Path(__file__).with_name("spawned.py")))


@dataclass(frozen=True)
class Cost:
    """Seconds and bytes of a command.

    `all_cpu_s` counts every process that was waited for, `others_cores` the cores that other programs used, on average.
    `begun_s` is on the clock of time.monotonic, which all processes share.
    """

    own_cpu_s: float
    all_cpu_s: float
    begun_s: float
    wall_s: float
    others_cores: float
    peak_rss_bytes: int


def cost_of(command: Sequence[str], folder: Path, beside: Callable[[], None] = lambda: None) -> Cost:
    """Run a command in a folder to its end, and `beside` while it runs; raise RuntimeError where it fails."""
    machine_s, said, found = _busy_s(), folder / "output.txt", folder / "cost.json"
    with said.open("w") as output:
        process = subprocess.Popen([*SPAWNED, found.absolute(), *command], cwd=folder, stdout=output, stderr=output)
    beside()
    if process.wait():
        raise RuntimeError(f"{' '.join(command)} cannot be run:\n{said.read_text()[-4000:]}")
    machine_s, cost = _busy_s() - machine_s, json.loads(found.read_text())
    if cost.pop("exit_code"):
        raise RuntimeError(f"{' '.join(command)} failed:\n{said.read_text()[-4000:]}")
    return Cost(**cost, others_cores=max(0.0, (machine_s - cost["all_cpu_s"]) / cost["wall_s"]))


def _busy_s() -> float:
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system)
