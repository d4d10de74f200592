"""Search for other runs of a sweep that used this host at the same time, according to their folders."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from llmexp.errors import RecordError
from llmexp.record.folder import RunFolder
from llmexp.record.identity import is_same


def concurrent_runs(folder: RunFolder, windows: Sequence[tuple[float, float]]) -> list[str]:
    """Return the names of the folders beside this one whose runs overlapped a window (begin and end in Unix time)."""
    found = []
    for path in sorted(folder.path.parent.glob("*/")):
        lasted = _lasted(RunFolder(path)) if path.name != folder.path.name else []
        if any(begun < end and begin < ended for begun, ended in lasted for begin, end in windows):
            found.append(path.name)
    return found


def _lasted(folder: RunFolder) -> list[tuple[float, float]]:
    """Return the Unix times of the run's begin and end here, or of each of its interleaved repeats.

    Return nothing where the run was not on this host, or its events cannot be read.
    """
    found: list[tuple[float, float]] = []
    begun: dict[str, Any] | None = None
    with contextlib.suppress(RecordError, OSError, ValueError):
        events = folder.events()
        for event in events:
            if begun and event["status"] != "running":
                found.append((_unix_s(begun), _unix_s(event)))
                begun = None
            elif event.get("host") == socket.gethostname() and not (begun and is_same(begun, event)):
                begun = event if event["status"] == "running" else None  # in place of a driver that was killed
        if begun:
            found.append((_unix_s(begun), _end_unix_s(folder, events[-1])))
    return found


def _end_unix_s(folder: RunFolder, last: dict[str, Any]) -> float:
    """Return the end of a run whose driver wrote none; the last sample of the machine stands for it."""
    if folder.state() == "running":
        return time.time()
    return max(_unix_s(last), folder.last_sample_unix_s() or 0.0)


def _unix_s(event: dict[str, Any]) -> float:
    return datetime.fromisoformat(event["at"]).timestamp()
