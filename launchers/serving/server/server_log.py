"""A server's log: its last words, whether it tells of memory that ran out, and its growth as a sign of life."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

LAST_LINES = 15
_TAIL_BYTES, _MEMORY_TAIL_BYTES, _HEAD_BYTES = 8192, 256 << 10, 1 << 20
_LONGEST_LINE = 300
_COLORS = re.compile(r"\x1b\[[0-9;]*m")
_PYTHON_ERROR = re.compile(r"(?:^|[\s\]])(?:\w+\.)*[A-Z]\w*(?:Error|Exception)(?:: |$)")
# An error that only points at an earlier one, such as vLLM's when its engine process failed.
_POINTS_BACK = "See root cause above"
# PyTorch, CUDA, cuBLAS, Python, C++, the kernel and llama.cpp; then what vLLM and SGLang say where weights leave no
# room for the KV cache.
_NO_MEMORY = re.compile(
    r"OutOfMemoryError|CUDA(?: error:)? out of memory|HIP out of memory|_OUT_OF_MEMORY|STATUS_ALLOC_FAILED|"
    r"can(?:'t|not) allocate memory|\bMemoryError\b|std::bad_alloc|failed: out of memory|"
    r"No available memory for the cache blocks|larger than the available KV cache memory|"
    r"Not enough memory\. Please try to increase",
    re.IGNORECASE,
)


class ServerLog:
    """The file that a server's output is added to; only what came since the last start counts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.begin()

    def begin(self) -> None:
        """Note that a server is about to start."""
        self._begin = self.path.stat().st_size if self.path.exists() else 0

    def tail(self, most_bytes: int = _TAIL_BYTES) -> str:
        """Return the end of what came since the start, without colors."""
        try:
            with self.path.open("rb") as file:
                file.seek(max(self._begin, file.seek(0, os.SEEK_END) - most_bytes))
                return _COLORS.sub("", file.read().decode(errors="replace"))
        except FileNotFoundError:
            return ""

    def head(self) -> str:
        """Return the begin of what came since the start, where a server says what it holds; without colors."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._begin)
                return _COLORS.sub("", file.read(_HEAD_BYTES).decode(errors="replace"))
        except FileNotFoundError:
            return ""

    def last_lines(self) -> str:
        """Return the last lines; empty where there are none."""
        return "\n".join(self.tail().splitlines()[-LAST_LINES:])

    def in_a_line(self, is_error: bool) -> str:
        """Name the log and quote its last line; where the server failed by itself, its last error."""
        lines = [line.strip() for line in self.tail(_MEMORY_TAIL_BYTES).splitlines() if line.strip()]
        if not lines:
            return f"{self.path} is empty"
        told = _last_told(lines) if is_error else lines[-1]
        return f"{self.path} ends: {told[:_LONGEST_LINE]}{'…' * (len(told) > _LONGEST_LINE)}"

    def tells_of_no_memory(self) -> bool:
        """Tell whether memory ran out by the server's own words."""
        return is_no_memory(self.tail(_MEMORY_TAIL_BYTES))


def is_no_memory(text: str) -> bool:
    """Tell whether a server's words mean that memory ran out."""
    return bool(_NO_MEMORY.search(text))


def _last_told(lines: list[str]) -> str:
    """Return the last line about memory, else the last error of Python that is none about another, else the last."""
    memory = [line for line in lines if _NO_MEMORY.search(line)]
    errors = [line for line in lines if _PYTHON_ERROR.search(line) and _POINTS_BACK not in line]
    return (memory or errors or lines)[-1]


class LogWatch:
    """When a log grew last, as a sign of life; `told` is called with every new last line."""

    def __init__(self, log: ServerLog, told: Callable[[str], None] | None) -> None:
        self._log, self._told = log, told
        self._bytes, self._last = -1, ""
        self.grown_at_s = time.monotonic()

    def look(self) -> None:
        """Note whether the log has grown, and tell its last line where that is a new one."""
        size = self._log.path.stat().st_size
        if size == self._bytes:
            return
        self._bytes, self.grown_at_s = size, time.monotonic()
        lines = [line for line in self._log.tail().splitlines() if line.strip()]
        if self._told and lines and lines[-1] != self._last:
            self._last = lines[-1]
            self._told(self._last)
