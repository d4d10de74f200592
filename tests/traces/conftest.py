"""Made-up traces in the profiler's format; times are in microseconds, as there."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

Event = dict[str, Any]


@dataclass
class Made:
    """Events that are written as a file."""

    folder: Path
    events: list[Event] = field(default_factory=list)
    launched: int = 0

    def operator(self, name: str, begin: float, end: float, thread: int = 1, **args: Any) -> None:
        self._add("cpu_op", name, begin, end, thread, args)

    def range(self, name: str, begin: float, end: float, thread: int = 1, **args: Any) -> None:
        self._add("user_annotation", name, begin, end, thread, args)

    def kernel(
        self, name: str, begin: float, end: float, launched: float | None = None, stream: int = 7, thread: int = 1
    ) -> None:
        """Add a kernel, and the host's call that launched it, if any, which takes a microsecond."""
        self.launched += 1
        args = {"device": 0, "stream": stream, "correlation": self.launched}
        self._add("gpu_memcpy" if name.startswith("Memcpy") else "kernel", name, begin, end, stream, args)
        if launched is not None:
            called = {"correlation": self.launched}
            self._add("cuda_runtime", "cudaLaunchKernel", launched, launched + 1, thread, called)

    def link(self, forward: tuple[int, float], backward: tuple[int, float]) -> None:
        """Link a moment of forward with one of backward, each a thread and its time."""
        number = len(self.events)
        for phase, (thread, at) in (("s", forward), ("f", backward)):
            self.events.append({"ph": phase, "id": number, "pid": 1, "tid": thread, "ts": at, "cat": "fwdbwd"})

    def _add(self, category: str, name: str, begin: float, end: float, thread: int, args: Event) -> None:
        times = {"ts": begin, "dur": round(end - begin, 3)}
        self.events.append({"ph": "X", "cat": category, "name": name, "pid": 1, "tid": thread, **times, "args": args})

    def file(self, name: str = "trace.json", indent: int | None = 2) -> Path:
        """Write the trace, packed where the name ends in gz."""
        text = json.dumps({"schemaVersion": 1, "traceEvents": self.events, "traceName": name}, indent=indent)
        path = self.folder / name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
        return path


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path)


@pytest.fixture
def another(tmp_path: Path) -> Callable[[], Made]:
    return lambda: Made(tmp_path)
