"""A separate tracking server, and a network to it that can be cut, stall or be slow."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

from chaos.surroundings import IDLE_S
from llmexp.machine.standstill import StandstillWatch

SLOW_S = 0.2


class Server:
    """`mlflow server` over SQLite, in a session of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.port = folder, free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def uri(self) -> str:
        """The server's address, without the network that can be broken."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the server and wait until it answers."""
        self._folder.mkdir(parents=True, exist_ok=True)
        store = [
            "--backend-store-uri",
            f"sqlite:///{self._folder}/server.db",
            "--artifacts-destination",
            str(self._folder / "artifacts"),
        ]
        command = [
            sys.executable,
            "-m",
            "mlflow",
            "server",
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
            "--workers",
            "1",
            *store,
        ]
        env = os.environ | {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        with (self._folder / "log.txt").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=env, start_new_session=True)
        watch = StandstillWatch(self._process.pid, IDLE_S)
        while not self._answers():
            if watch.stands_still():
                raise RuntimeError(f"no tracking server, and nothing done for {IDLE_S:g} s: {self._folder}/log.txt")
            time.sleep(0.1)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to all processes of the server."""
        if self._process:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def kill(self) -> None:
        """End the server at once, as a power cut does."""
        self.send(signal.SIGKILL)
        if self._process:
            self._process.wait()

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.uri}/health", timeout=1) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


class Network:
    """A relay of connections to a port: normal, slow, passing nothing ('stalled'), or ending them ('cut')."""

    def __init__(self, port: int) -> None:
        self._to, self.state = port, "well"
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._pairs: dict[socket.socket, socket.socket] = {}
        threading.Thread(target=self._run, name="network", daemon=True).start()

    @property
    def uri(self) -> str:
        """The server's address behind the relay."""
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def _run(self) -> None:
        while True:
            if self.state == "cut":
                self._end(list(self._pairs))
            if self.state == "stalled":
                time.sleep(0.05)
                continue
            ready, _, _ = select.select([self._listening, *self._pairs], [], [], 0.05)
            for one in ready:
                if one is self._listening:
                    self._accept()
                elif one in self._pairs:
                    self._pass_on(one)

    def _accept(self) -> None:
        near, _ = self._listening.accept()
        try:
            far = socket.create_connection(("127.0.0.1", self._to), timeout=1)
        except OSError:
            near.close()
            return
        self._pairs |= {near: far, far: near}

    def _pass_on(self, one: socket.socket) -> None:
        if self.state == "slow":
            time.sleep(SLOW_S)
        try:
            data = one.recv(2**16)
            if data:
                self._pairs[one].sendall(data)
        except OSError:
            data = b""
        if not data:
            self._end([one])

    def _end(self, ones: list[socket.socket]) -> None:
        for one in ones:
            other = self._pairs.pop(one, None)
            if other:
                self._pairs.pop(other, None)
                other.close()
            one.close()


def free_port() -> int:
    """Return a port of 127.0.0.1 that is free at the moment."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])
