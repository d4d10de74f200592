"""Start one repeat's ranks and hold them in their own session, with a pinned environment, and end all of them."""

from __future__ import annotations

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

from llmexp.launch.supervisor import GRACE_S, PATIENCE_S, SIGNALLED
from llmexp.machine.processes import handles

# The log of the first node, or the only one; another node's number comes before the suffix.
AGENT_LOG = "log.agent.txt"
# A supervisor that takes longer than this does not end its ranks.
ENDS_WITHIN_S = 2 * (GRACE_S + PATIENCE_S)


class Agent:
    """The command that starts a node's ranks, under a supervisor.

    It is a context manager that ends all of them, finally by the command `ending`.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], log: Path, ending: Sequence[str] = ()) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        # Nothing is ever sent on this line: each side learns from its closing that the other has gone.
        self._line, supervisors_end = socket.socketpair()
        with log.open("ab") as file, supervisors_end:
            supervisor = [sys.executable, "-m", "llmexp.launch.supervisor", shlex.join(ending), *argv]
            self._supervisor = subprocess.Popen(
                supervisor,
                stdin=supervisors_end.fileno(),
                stdout=file,
                stderr=file,
                env=dict(env),
                start_new_session=True,
            )
        self.pid = self._supervisor.pid

    def __enter__(self) -> Agent:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def fileno(self) -> int:
        """Return a descriptor for select that becomes readable when everything has ended."""
        return self._line.fileno()

    def ends_within(self, seconds: float) -> bool:
        """Sleep until everything has ended, or for that many seconds; say whether everything has ended."""
        return bool(select.select([self], [], [], seconds)[0])

    def stop(self) -> int:
        """End all processes that still run; return the command's exit code, -n where signal n ended it."""
        self._line.close()
        self._supervisor.send_signal(signal.SIGCONT)  # a user may have stopped it
        try:
            return exit_code(self._supervisor.wait(ENDS_WITHIN_S))
        except subprocess.TimeoutExpired:
            for process in psutil.Process(self.pid).children(recursive=True):
                process.kill()
            self._supervisor.kill()
            return exit_code(self._supervisor.wait())

    def ask_for_stacks(self, elsewhere: Iterable[psutil.Process] = ()) -> None:
        """Send SIGUSR1 to the processes that handle it, as it would end any other.

        Ranks handle it: they write their Python stacks to their logs.
        """
        for process in {*psutil.Process(self.pid).children(recursive=True), *elsewhere}:
            if handles(process.pid, signal.SIGUSR1):
                process.send_signal(signal.SIGUSR1)


def exit_code(told: int) -> int:
    """Return the exit code that a supervisor means, -n where signal n ended the command."""
    return SIGNALLED - told if told > SIGNALLED else told


def agent_log(repeat: Path, node: int = 0) -> Path:
    """Return the path of a node's launcher log."""
    return repeat / (f"log.agent.{node}.txt" if node else AGENT_LOG)
