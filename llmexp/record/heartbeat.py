"""A sign of life for those who cannot see a process: a file that it touches every few seconds, by the clock of the server that holds it.

Whoever judges compares that with what the same server says of a file of the moment, so that no host's clock matters. Only where a filesystem takes
times from its clients, as Lustre and sshfs do, must their clocks agree to some minutes.
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
# Servers and virtual machines stall for minutes, and NFS shows an old time for one; a dead driver's run waits for this long.
SILENT_S = 600.0
# By this host's own clock, where the server's cannot be asked: wrong time zones are hours off.
UNASKED_S = 86_400.0
# Who waits for a run looks at it twice a second.
_ASK_EVERY_S = 10.0
# A file server may hang.
_END_WITHIN_S = 10.0
# How far the clock of a filesystem, by its device, is ahead of time.monotonic, and when by the latter it was asked.
_ahead_s: dict[int, tuple[float, float]] = {}


@contextmanager
def beating(descriptor: int) -> Iterator[None]:
    """Give signs of life at an open file as long as the block lasts."""
    ended = threading.Event()
    thread = threading.Thread(target=_beat, args=(descriptor, ended), name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_END_WITHIN_S)


def touch(descriptor: int) -> None:
    """Give one sign of life; nothing where the filesystem fails for the moment."""
    with suppress(OSError):
        os.utime(descriptor)  # without a time, which is then the server's


def is_silent(file: Path) -> bool:
    """Whether there has been no sign of life at a file for so long that its holder is dead, or the file is gone; no where that cannot be told."""
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
    """The time by the clock that a folder's files get theirs from; raises OSError where none can be made there."""
    device = folder.stat().st_dev
    asked_s, ahead_s = _ahead_s.get(device, (-math.inf, 0.0))
    if time.monotonic() - asked_s > _ASK_EVERY_S:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.utime(file.fileno())
            ahead_s = os.fstat(file.fileno()).st_mtime - time.monotonic()
        _ahead_s[device] = (time.monotonic(), ahead_s)
    return time.monotonic() + ahead_s
