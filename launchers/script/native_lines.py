"""Reads standard output beneath Python: what C and C++ print in this process, and what its child processes print."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
from collections.abc import Callable

_LINE_BUFFERED = 1  # _IOLBF of stdio.h


class NativeLines:
    """Hands the whole lines of each read to `take`, in a thread; the lines of sys.stdout are not among them.

    Standard error stays as it is: what a process prints there as it dies must not wait for a thread.
    """

    def __init__(self, take: Callable[[list[str]], None]) -> None:
        self._take = take
        sys.stdout.flush()
        self._log = os.dup(1)
        _print_to(self._log)
        self._read_end, write_end = os.pipe()
        os.dup2(write_end, 1)
        os.close(write_end)
        _end_lines_at_once()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Wait for what was printed; a child process that is still alive holds this up for at most 5 s."""
        ctypes.CDLL(None).fflush(None)
        os.dup2(self._log, 1)
        self._thread.join(timeout=5)

    def _read(self) -> None:
        begun = b""
        while piece := os.read(self._read_end, 1 << 16):
            _write_all(self._log, piece)
            *lines, begun = (begun + piece).split(b"\n")
            self._take([line.decode(errors="replace") for line in lines if line])
        if begun:
            self._take([begun.decode(errors="replace")])


def _print_to(log: int) -> None:
    """Let sys.stdout write to the log at once.

    The stream itself is changed, because libraries that were imported before keep a reference to it.
    """
    direct = open(log, "w", encoding=sys.stdout.encoding, errors="replace", buffering=1, closefd=False)  # noqa: SIM115
    sys.stdout.write, sys.stdout.flush = direct.write, direct.flush  # type: ignore[method-assign]


def _end_lines_at_once() -> None:
    """Keep stdio from holding lines back, as it does where standard output is no terminal."""
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    library = ctypes.CDLL(None)
    with contextlib.suppress(ValueError):  # a C library without a symbol of this name
        library.setvbuf(ctypes.c_void_p.in_dll(library, "stdout"), None, _LINE_BUFFERED, 0)


def _write_all(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]
