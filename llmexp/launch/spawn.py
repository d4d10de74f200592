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

from llmexp.launch.keeper import GRACE_S, PATIENCE_S, SIGNALLED
from llmexp.machine.processes import handles
from llmexp.machine.processor import usable_cores
from llmexp.record.plan import RunPlan

# Of the first node, or the only one; another's has its number before the suffix.
AGENT_LOG = "log.agent.txt"
# A keeper that takes longer to end its ranks does not end them.
ENDS_WITHIN_S = 2 * (GRACE_S + PATIENCE_S)


class Agent:
    """The command that starts a node's ranks, under a keeper; a context manager that ends all of them, at last by the command `ending`."""

    def __init__(self, argv: Sequence[str], log: Path, env: Mapping[str, str], ending: Sequence[str] = ()) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        # Nothing is ever said on this line: each side learns from its closing that the other has gone.
        self._line, keepers_end = socket.socketpair()
        with log.open("ab") as file, keepers_end:
            keeper = [sys.executable, "-m", "llmexp.launch.keeper", shlex.join(ending), *argv]
            self._keeper = subprocess.Popen(keeper, stdin=keepers_end.fileno(), stdout=file, stderr=file, env=dict(env), start_new_session=True)
        self.pid = self._keeper.pid

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def fileno(self) -> int:
        """A descriptor that becomes readable when everything has ended, for select."""
        return self._line.fileno()

    def ends_within(self, seconds: float) -> bool:
        """Block until everything has ended, or for that long; asleep all the while."""
        return bool(select.select([self], [], [], seconds)[0])

    def stop(self) -> int:
        """End all processes that still run; return the command's exit code, -n where signal n ended it."""
        self._line.close()
        self._keeper.send_signal(signal.SIGCONT)  # somebody may have stopped it
        try:
            return exit_code(self._keeper.wait(ENDS_WITHIN_S))
        except subprocess.TimeoutExpired:
            for process in psutil.Process(self.pid).children(recursive=True):
                process.kill()
            self._keeper.kill()
            return exit_code(self._keeper.wait())

    def ask_for_stacks(self, elsewhere: Iterable[psutil.Process] = ()) -> None:
        """Send SIGUSR1 to the processes that handle it, as ranks do by writing their Python stacks to their logs; it would end any other."""
        for process in {*psutil.Process(self.pid).children(recursive=True), *elsewhere}:
            if handles(process.pid, signal.SIGUSR1):
                process.send_signal(signal.SIGUSR1)


def exit_code(told: int) -> int:
    """The exit code that a keeper means, -n where signal n ended the command."""
    return SIGNALLED - told if told > SIGNALLED else told


def agent_log(repeat: Path, node: int = 0) -> Path:
    """What a node's launcher says."""
    return repeat / (f"log.agent.{node}.txt" if node else AGENT_LOG)


def environment(plan: RunPlan, extra: Mapping[str, str]) -> dict[str, str]:
    """The ranks' environment: this process's own, the cores shared out, then what the runtime, `extra` and the plan's command say."""
    own = {name: value for name, value in os.environ.items() if name not in plan.command.unset}
    # A psutil.py in the working directory is nobody's psutil.
    return {**own, "PYTHONSAFEPATH": "1", **_threads(plan), **_interfaces(plan), **plan.config.runtime.environment, **extra, **plan.command.env}


def _interfaces(plan: RunPlan) -> dict[str, str]:
    """Ranks of one node need none that other machines reach."""
    loopback = "lo" if sys.platform == "linux" else "lo0"
    names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME") if plan.config.hardware.nodes == 1 else ()
    return {name: loopback for name in names if name not in os.environ}


def _threads(plan: RunPlan) -> dict[str, str]:
    threads = plan.config.measure.threads_per_rank
    if threads is None and plan.config.hardware.device == "cuda" and "OMP_NUM_THREADS" in os.environ:
        return {}
    if threads is None:
        threads = max(1, usable_cores() // plan.ranks_per_node)
    return dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
