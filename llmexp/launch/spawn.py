"""Start one repeat's ranks and hold them: an own session, a pinned environment, and an end that leaves nothing behind."""

from __future__ import annotations

import os
import select
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

import psutil

from llmexp.launch.keeper import SIGNALLED
from llmexp.plan.run_plan import RunPlan

AGENT_LOG = "log.agent.txt"


class Agent:
    """The command that starts the ranks, under a keeper; a context manager that ends all of them, at last by the command `ending`."""

    def __init__(self, argv: Sequence[str], repeat: Path, env: Mapping[str, str], ending: Sequence[str] = ()) -> None:
        repeat.mkdir(parents=True)
        command = [word.replace("{folder}", str(repeat.absolute())) for word in argv]
        # Nothing is ever said on this line: each side learns from its closing that the other has gone.
        self._line, keepers_end = socket.socketpair()
        with (repeat / AGENT_LOG).open("ab") as log, keepers_end:
            keeper = [sys.executable, "-m", "llmexp.launch.keeper", shlex.join(ending), *command]
            self._keeper = subprocess.Popen(keeper, stdin=keepers_end.fileno(), stdout=log, stderr=log, env=dict(env), start_new_session=True)

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def ends_within(self, seconds: float) -> bool:
        """Block until everything has ended, or for that long; asleep all the while."""
        return bool(select.select([self._line], [], [], seconds)[0])

    def stop(self) -> int:
        """End all processes that still run; return the command's exit code, -n where signal n ended it."""
        self._line.close()
        code = self._keeper.wait()
        return SIGNALLED - code if code > SIGNALLED else code

    def ask_for_stacks(self, elsewhere: Iterable[psutil.Process] = ()) -> None:
        """Send SIGUSR1 to the processes that handle it, as ranks do by writing their Python stacks to their logs; it would end any other."""
        for process in {*psutil.Process(self._keeper.pid).children(recursive=True), *elsewhere}:
            if _handles(process.pid, signal.SIGUSR1):
                process.send_signal(signal.SIGUSR1)


def environment(plan: RunPlan, extra: Mapping[str, str]) -> dict[str, str]:
    """The ranks' environment: this process's own, threads pinned, then what the runtime, `extra` and the plan's command say."""
    return {**os.environ, **_threads(plan), **plan.config.runtime.environment, **extra, **plan.command.env}


def _threads(plan: RunPlan) -> dict[str, str]:
    threads = plan.config.measure.threads_per_rank
    if threads is None and plan.config.hardware.device == "cpu":
        threads = max(1, _cores() // plan.dims.world_size)
    return {} if threads is None else dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _handles(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler for a signal, where the kernel says so (Linux)."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (number - 1) & 1)
