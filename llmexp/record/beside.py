"""Which other runs of a sweep were at work on this host at the same time, by what their folders say."""

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
    """Names of the folders beside this one whose runs lasted into a window (begin and end in Unix time), if only for a part of it."""
    found = []
    for path in sorted(folder.path.parent.glob("*/")):
        lasted = _lasted(RunFolder(path)) if path.name != folder.path.name else None
        if lasted and any(lasted[0] < end and begin < lasted[1] for begin, end in windows):
            found.append(path.name)
    return found


def _lasted(folder: RunFolder) -> tuple[float, float] | None:
    """From its driver's first word to its end, or till now; None where it did not run on this host, or its events cannot be read."""
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
    """Of a run that its driver died at, or gave up, without a word: its last sample of the machine."""
    if last["status"] != "running":
        return _unix_s(last)
    if folder.state() == "running":
        return time.time()
    return max(_unix_s(last), folder.last_sample_unix_s() or 0.0)


def _unix_s(event: dict[str, Any]) -> float:
    return datetime.fromisoformat(event["at"]).timestamp()
