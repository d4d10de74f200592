"""The client and the daemon that `runtime=docker` uses in sweeps of the suite."""

from __future__ import annotations

import subprocess
import sys
import time
from types import TracebackType

from chaos import container_daemon
from chaos.container_daemon import IMAGE, INSIDE
from chaos.surroundings import MARK, Surroundings

STARTS_WITHIN_S = 30.0
DAEMON = str(container_daemon.__file__)


class Containers:
    """A daemon for the surroundings, as a context manager; `program` is the client's path."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._surroundings, self._socket = surroundings, surroundings.scratch / "containers"
        self.program = surroundings.scratch / "docker"

    @property
    def words(self) -> tuple[str, ...]:
        """The words of llmexp's command line that choose this runtime."""
        return (
            "runtime=docker",
            f"runtime.program={self.program}",
            f"runtime.image={IMAGE}",
            f"runtime.python={sys.executable}",
        )

    def __enter__(self) -> Containers:
        self.program.write_text(f'#!/bin/sh\nexec {sys.executable} {DAEMON} {self._socket} "$@"\n')
        self.program.chmod(0o755)
        env = {name: value for name, value in self._surroundings.environment.items() if name != MARK} | {
            f"{MARK}{INSIDE}": self._surroundings.mark
        }
        self._daemon = subprocess.Popen(
            [sys.executable, DAEMON, "serve", str(self._socket)], env=env, start_new_session=True
        )
        deadline = time.monotonic() + STARTS_WITHIN_S
        while not self._socket.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._daemon.terminate()
        self._daemon.wait()
