"""The process that looks at a server while it is under load: its page of metrics, its processes, its GPUs.

It is a process of its own, so that no look holds the interpreter's lock while the client notes when a token came: on a
host with many processes, or a GPU whose driver is slow, a look may take long. It gets its order on its standard input,
and works until that closes.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import TextIO

from pydantic import TypeAdapter

from llmexp.launchers.serving.client.address import Address
from llmexp.launchers.serving.watch.metrics_page import MetricsPage, PageError
from llmexp.machine.gpu_load import board_load
from llmexp.machine.process_tree import ProcessTree
from llmexp.serving.plan.server_plan import MetricNames
from llmexp.serving.record.server_samples import GpuSample, ServerSample

READY = b"watching\n"
Look = Callable[[], ServerSample]


@dataclass(frozen=True)
class Watched:
    """What is looked at, how often, and where it is written; times count from `origin_s` of time.perf_counter.

    That clock is the same in all processes of a machine.
    """

    file: Path
    origin_s: float
    address: Address | None = None
    metrics: str | None = None
    """The route of the page; None where the server has none."""
    names: MetricNames = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    """Of the question for the page, such as a key, which is written nowhere."""
    pid: int | None = None
    """The process below which the server's are; None for a server elsewhere."""
    gpus: Sequence[str] = ()
    """The UUIDs of the server's GPUs."""
    interval_s: float = 0.5
    """Between looks at processes and GPUs."""
    page_interval_s: float = 1.0
    """Longer, since a server writes its page in the process that streams its tokens: some milliseconds for vLLM's."""
    page_within_s: float = 2.0


ORDER = TypeAdapter(Watched)


class PageLook:
    """Reads the page; one that does not come is a sample that says why."""

    def __init__(self, watched: Watched, address: Address, path: str) -> None:
        self._page = MetricsPage(address, path, watched.names, watched.headers)
        self._watched = watched

    def __call__(self) -> ServerSample:
        """Return the sample of one reading."""
        begun_s, told, missed = time.perf_counter(), None, ""
        try:
            told = self._page.read(self._watched.page_within_s)
        except PageError as error:
            missed = str(error)
        now_s = time.perf_counter()
        at_s, took_s = now_s - self._watched.origin_s, now_s - begun_s
        return ServerSample(at_s=round(at_s, 6), page=told, page_took_s=round(took_s, 6), missed=missed)


class MachineLook:
    """Reads the memory and CPU time of the server's processes, and its GPUs."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._tree = ProcessTree(watched.pid) if watched.pid is not None else None

    def __call__(self) -> ServerSample:
        """Return the sample of one reading."""
        gpus = [GpuSample(uuid=uuid, **board_load(uuid)) for uuid in self._watched.gpus]
        sample = ServerSample(at_s=0.0, gpus=gpus)
        if self._tree:
            sample.processes = len(self._tree.living())
            sample.resident_bytes, sample.cpu_s = self._tree.resident_bytes(), round(self._tree.computed_s(), 3)
        sample.at_s = round(time.perf_counter() - self._watched.origin_s, 6)
        return sample


class WatchRounds(Thread):
    """Looks at every interval, whenever it is told to, and once more when it is over; a line for each look.

    A look that takes longer than the interval delays the next.
    """

    def __init__(self, look: Look, interval_s: float, file: TextIO) -> None:
        super().__init__(daemon=True)
        self._look, self._interval_s, self._file = look, interval_s, file
        self._called, self._is_over = Event(), False

    def look_now(self) -> None:
        """Have the next look taken at once."""
        self._called.set()

    def finish(self) -> None:
        """Have the last look taken."""
        self._is_over = True
        self._called.set()

    def run(self) -> None:
        """Thread's call."""
        due_s, is_last = time.perf_counter(), False
        while not is_last:
            self._called.wait(max(0.0, due_s - time.perf_counter()))
            self._called.clear()
            is_last = self._is_over
            due_s = time.perf_counter() + self._interval_s
            # A full disk ends no measurement.
            with contextlib.suppress(OSError):
                self._file.write(self._look().model_dump_json(exclude_defaults=True) + "\n")


def rounds(watched: Watched, file: TextIO) -> list[WatchRounds]:
    """Return the rounds of what can be looked at."""
    found = []
    if watched.address and watched.metrics and watched.names:
        page = PageLook(watched, watched.address, watched.metrics)
        found.append(WatchRounds(page, watched.page_interval_s, file))
    if watched.pid is not None or watched.gpus:
        found.append(WatchRounds(MachineLook(watched), watched.interval_s, file))
    return found


def main() -> None:
    """Watch what standard input orders, look at once at each line of it, and end when it closes.

    Ctrl-C is for those who started this.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    watched = ORDER.validate_json(sys.stdin.readline())
    with watched.file.open("a", buffering=1) as file:
        every = rounds(watched, file)
        for one in every:
            one.start()
        sys.stdout.buffer.write(READY)
        sys.stdout.buffer.flush()
        for _ in sys.stdin:
            for one in every:
                one.look_now()
        for one in every:
            one.finish()
        for one in every:
            one.join(watched.page_within_s + 1)


if __name__ == "__main__":
    main()
