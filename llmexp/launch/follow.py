"""Read what ranks write while they run: new samples only, and whether anything was written at all."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Generic, TypeVar

from llmexp.record.printed import Appended
from llmexp.record.samples import Sample

S = TypeVar("S", bound=Sample)


class SampleFollower(Generic[S]):
    """A reader of the samples that a file has gained since the last read."""

    def __init__(self, path: Path, kind: type[S]) -> None:
        self._file, self._kind = Appended(path), kind

    def read(self) -> list[S]:
        """Return new complete lines; an incomplete line waits for the next read."""
        return [self._kind.model_validate_json(line) for line in self._file.read()]


class Silence:
    """A clock of how long no rank of a repeat has written a sample or a line of its log."""

    def __init__(self, repeat: Path) -> None:
        self._repeat = repeat
        self._written_bytes = -1
        self._since_s = time.monotonic()

    def seconds(self) -> float:
        """Return the seconds since the files were last seen to grow."""
        written = sum(path.stat().st_size for pattern in ("samples.*", "log.*") for path in self._repeat.glob(pattern))
        if written != self._written_bytes:
            self._written_bytes, self._since_s = written, time.monotonic()
        return time.monotonic() - self._since_s
