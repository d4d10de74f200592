"""Watches a server from a process beside it, and writes what is seen to server.<rank>.jsonl."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from llmexp.launchers.serving.client.address import Address
from llmexp.launchers.serving.server.running_server import AnyServer
from llmexp.launchers.serving.watch.watching import ORDER, Watched
from llmexp.serving.record.server_samples import server_samples_path

# Over what the watch gives to a page that hangs and to a driver that does.
_ENDS_WITHIN_S = 5.0


class ServerWatch:
    """A watch from `start` to `stop`, or while its block runs; it ends too where this process does.

    It never raises: where nothing can be seen, there are no samples.
    """

    def __init__(self, watched: Watched) -> None:
        self.watched = watched
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def of(cls, server: AnyServer, repeat: Path, origin_s: float, gpus: Sequence[str] = ()) -> ServerWatch:
        """Return a watch of a server, on the GPUs with these UUIDs; times count from origin_s."""
        plan, address = server.plan, Address.of(server.url)
        return cls(
            Watched(
                server_samples_path(repeat),
                origin_s,
                address,
                plan.metrics,
                plan.metric_names,
                server.headers,
                server.pid,
                gpus=tuple(gpus),
            )
        )

    def __enter__(self) -> ServerWatch:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the watching process, and wait until it looks: about half a second, before any load."""
        words = [sys.executable, "-m", "llmexp.launchers.serving.watch.watching"]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin
        assert self._process.stdout
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(ORDER.dump_json(self.watched) + b"\n")
            self._process.stdin.flush()
        self._process.stdout.readline()

    def look(self) -> None:
        """Have samples taken at once, such as where a load point begins or ends; does not wait for them."""
        if self._process is None:
            return
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(b"\n")
            self._process.stdin.flush()

    def stop(self) -> None:
        """Have the last samples taken, and end the process; one that hangs with a driver is killed."""
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            assert pipe
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        try:
            process.wait(self.watched.page_within_s + _ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
