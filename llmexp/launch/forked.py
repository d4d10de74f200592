"""The driver's side of engine.launcher=fork: a sweep's repeats fork their ranks from one process.

That process imports once what ranks need: a fresh interpreter takes seconds to import torch, DeepSpeed and
transformers. Ranks on GPUs cannot be forked: importing these libraries looks for GPUs, and a process that has done so
cannot be forked for them.
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

# The time between the closing of a process's sockets and its end.
ENDING_S = 1.0


class ForkServer:
    """A process that has imported one engine's worker in one environment; it always ends when the driver ends."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        self._made_for = (tuple(command), dict(env))
        self._orders, its_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with log.open("ab") as file, its_end:
            self.process = subprocess.Popen(
                command, stdin=its_end.fileno(), stdout=file, stderr=file, env=dict(env), start_new_session=True
            )

    def serves(self, command: Sequence[str], env: Mapping[str, str]) -> bool:
        """Say whether the server runs and was made for this command and environment."""
        return self.process.poll() is None and self._made_for == (tuple(command), dict(env))

    def fork(self, words: Sequence[str], line: socket.socket, log: Path) -> None:
        """Order a supervisor of ranks, which gets `line` as its standard input.

        Where the server has gone, `line` is closed and no answer comes.
        """
        with log.open("ab") as file, suppress(ConnectionError):
            socket.send_fds(self._orders, ["\0".join(words).encode()], [line.fileno(), file.fileno()])

    def exit_code(self) -> int:
        """Return the server's exit code where it has ended or is about to, else -9: the supervisor was killed."""
        with suppress(subprocess.TimeoutExpired):
            return self.process.wait(ENDING_S)
        return -signal.SIGKILL

    def close(self) -> None:
        """Let the server end, and the ranks that it has forked."""
        self._orders.close()
        self.process.wait()


class ForkedAgent(Agent):
    """One repeat's ranks, forked; their supervisor is a child of the server and sends its exit code over the line."""

    server: ForkServer | None = None
    """This driver's server, which serves its next repeat too."""

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
        """Stop as Agent does.

        Without an answer, return the server's exit code, or -9 where only the supervisor was killed.
        """
        if self._code is None:
            with suppress(OSError):
                self._line.shutdown(socket.SHUT_WR)
            told = self._line.recv(MESSAGE_BYTES)
            self._line.close()
            self._code = exit_code(int(told)) if told else self._server.exit_code()
        return self._code


def _server_for(command: Sequence[str], env: Mapping[str, str], log: Path) -> ForkServer:
    """Return the present server, or a new one where it is gone or was made for another worker or environment."""
    server = ForkedAgent.server
    if server is None or not server.serves(command, env):
        if server:
            server.close()
        ForkedAgent.server = server = ForkServer(command, env, log)
    return server


def close_server() -> None:
    """Let this driver's server end: it keeps the memory of all that it has imported."""
    if ForkedAgent.server:
        ForkedAgent.server.close()
    ForkedAgent.server = None
