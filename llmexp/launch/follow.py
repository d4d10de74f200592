"""Read what ranks write while they write it: new samples only, and whether anything was written at all."""

from __future__ import annotations

import time
from pathlib import Path

from llmexp.record.printed import Appended
from llmexp.record.result import StepSample


class SampleFollower:
    """The steps that a samples file has gained since the last look."""

    def __init__(self, path: Path) -> None:
        self._file = Appended(path)

    def read(self) -> list[StepSample]:
        """New complete lines; a line still being written waits for the next look."""
        return [StepSample.model_validate_json(line) for line in self._file.read()]


class Silence:
    """How long no rank of a repeat has written a sample or a line of its log."""

    def __init__(self, repeat: Path) -> None:
        self._repeat = repeat
        self._written_bytes = -1
        self._since_s = time.monotonic()

    def seconds(self) -> float:
        """Seconds since the files were last seen to grow."""
        written = sum(path.stat().st_size for pattern in ("samples.*", "log.*") for path in self._repeat.glob(pattern))
        if written != self._written_bytes:
            self._written_bytes, self._since_s = written, time.monotonic()
        return time.monotonic() - self._since_s
