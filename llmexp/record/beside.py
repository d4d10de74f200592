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


def beside(folder: RunFolder, windows: Sequence[tuple[float, float]]) -> list[str]:
    """Return the names of the folders beside this one whose runs overlapped a window (begin and end in Unix time)."""
    found = []
    for path in sorted(folder.path.parent.glob("*/")):
        lasted = _lasted(RunFolder(path)) if path.name != folder.path.name else None
        if lasted and any(lasted[0] < end and begin < lasted[1] for begin, end in windows):
            found.append(path.name)
    return found


def _lasted(folder: RunFolder) -> tuple[float, float] | None:
    """Return the Unix times from the driver's first event here to the run's end, or to now while it runs.

    Return None where the run was not on this host, or its events cannot be read.
    """
    with contextlib.suppress(RecordError, OSError, ValueError):
        events = folder.events()
        begun = next(
            (event for event in events if event["status"] == "running" and event.get("host") == socket.gethostname()),
            None,
        )
        if begun:
            return _unix_s(begun), _end_unix_s(folder, events[-1])
    return None


def _end_unix_s(folder: RunFolder, last: dict[str, Any]) -> float:
    """Return the end of a run; where the driver wrote none, the last sample of the machine stands for it."""
    if last["status"] != "running":
        return _unix_s(last)
    if folder.state() == "running":
        return time.time()
    return max(_unix_s(last), folder.last_sample_unix_s() or 0.0)


def _unix_s(event: dict[str, Any]) -> float:
    return datetime.fromisoformat(event["at"]).timestamp()
