"""A heartbeat for observers that cannot see a process: a file that the process touches every few seconds.

The time of a touch is by the clock of the server that holds the file. An observer compares it with the time that the
same server gives to a new file, so no host's clock matters. Only where a filesystem takes times from its clients, as
Lustre and sshfs do, must the clients' clocks agree to within some minutes.
"""

from __future__ import annotations

import math
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

EVERY_S = 10.0
# Servers and virtual machines can stall for minutes, and NFS can show a time that is a minute old. A dead driver's
# run waits for this long.
SILENT_S = 600.0
# The limit by this host's own clock, where the server's cannot be asked: a wrong time zone is hours off.
UNASKED_S = 86_400.0
# A process that waits for a run checks it twice a second, so the server's clock is not asked every time.
_ASK_EVERY_S = 10.0
# A file server may hang.
_END_WITHIN_S = 10.0
# For each filesystem, by its device: when its clock was asked, by time.monotonic, and how far it was ahead of that.
_ahead_s: dict[int, tuple[float, float]] = {}


@contextmanager
def beating(descriptor: int) -> Iterator[None]:
    """Touch an open file regularly, as a sign of life, as long as the block lasts."""
    ended = threading.Event()
    thread = threading.Thread(target=_beat, args=(descriptor, ended), name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_END_WITHIN_S)


def touch(descriptor: int) -> None:
    """Touch an open file once as a sign of life; errors of the filesystem are ignored, as they may be temporary."""
    with suppress(OSError):
        os.utime(descriptor)  # without an explicit time, the server sets its own


def is_silent(file: Path) -> bool:
    """Tell whether a file's holder counts as dead: the last sign of life is too old, or the file is gone.

    The answer is False where this cannot be told.
    """
    try:
        with file.open("rb") as opened:  # NFS asks its server when a file is opened
            touched_s = os.fstat(opened.fileno()).st_mtime
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        return _now_s(file.parent) - touched_s > SILENT_S
    except OSError:
        return time.time() - touched_s > UNASKED_S


def _beat(descriptor: int, ended: threading.Event) -> None:
    while not ended.wait(EVERY_S):
        touch(descriptor)


def _now_s(folder: Path) -> float:
    """Return the time by the clock that stamps a folder's files; raises OSError where no file can be made there."""
    device = folder.stat().st_dev
    asked_s, ahead_s = _ahead_s.get(device, (-math.inf, 0.0))
    if time.monotonic() - asked_s > _ASK_EVERY_S:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.utime(file.fileno())
            ahead_s = os.fstat(file.fileno()).st_mtime - time.monotonic()
        _ahead_s[device] = (time.monotonic(), ahead_s)
    return time.monotonic() + ahead_s
