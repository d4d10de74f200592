"""engine.launcher=fork, the driver's end: one process imports what ranks need, and every repeat of a sweep forks its ranks from it.

A fresh interpreter takes seconds to import torch, DeepSpeed and transformers; a forked one has them. Ranks of GPUs cannot be made so: importing these
libraries looks for GPUs, and a process that has done so cannot be forked for them.
"""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from llmexp.launch.fork_server import MESSAGE_BYTES
from llmexp.launch.spawn import Agent, exit_code

# Between the closing of a process's sockets and its end.
ENDING_S = 1.0


class ForkServer:
    """A process that has imported one engine's worker in one environment; it ends when the driver does, however that ends."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        self._made_for = (tuple(command), dict(env))
        self._orders, its_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with log.open("ab") as file, its_end:
            self.process = subprocess.Popen(
                command, stdin=its_end.fileno(), stdout=file, stderr=file, env=dict(env), start_new_session=True
            )

    def serves(self, command: Sequence[str], env: Mapping[str, str]) -> bool:
        """Whether it is there and was made for these."""
        return self.process.poll() is None and self._made_for == (tuple(command), dict(env))

    def fork(self, words: Sequence[str], line: socket.socket, log: Path) -> None:
        """Order a supervisor of ranks, which holds `line` as its standard input; where the server has gone, `line` is closed and nothing comes."""
        with log.open("ab") as file, suppress(ConnectionError):
            socket.send_fds(self._orders, ["\0".join(words).encode()], [line.fileno(), file.fileno()])

    def exit_code(self) -> int:
        """Return its own where it has ended, or is about to; else that of a supervisor which was killed before it could tell."""
        with suppress(subprocess.TimeoutExpired):
            return self.process.wait(ENDING_S)
        return -signal.SIGKILL

    def close(self) -> None:
        """Let it end, and the ranks that it has forked."""
        self._orders.close()
        self.process.wait()


class ForkedAgent(Agent):
    """One repeat's ranks, forked; their supervisor is the server's child, and tells its exit code by the line."""

    server: ForkServer | None = None
    """Of this driver, for its next repeat too."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        *command, ranks, port, folder = argv
        self._line, supervisors_end = socket.socketpair()
        self._code: int | None = None
        self._server = _server_for(command, env, log)
        self.pid = self._server.process.pid
        with supervisors_end:
            self._server.fork((ranks, port, folder), supervisors_end, log)

    def stop(self) -> int:
        """See Agent; where nobody is left to tell, the server's own exit code, or -9 where the supervisor alone was killed."""
        if self._code is None:
            with suppress(OSError):
                self._line.shutdown(socket.SHUT_WR)
            told = self._line.recv(MESSAGE_BYTES)
            self._line.close()
            self._code = exit_code(int(told)) if told else self._server.exit_code()
        return self._code


def _server_for(command: Sequence[str], env: Mapping[str, str], log: Path) -> ForkServer:
    """The server at hand, or a new one in its place where it is gone or was made for another worker or environment."""
    server = ForkedAgent.server
    if server is None or not server.serves(command, env):
        if server:
            server.close()
        ForkedAgent.server = server = ForkServer(command, env, log)
    return server
