"""What a tracker beside MLflow is, and a run as it gets it."""

from __future__ import annotations

import json
import math
import struct
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from llmexp.errors import ConfigError
from llmexp.record.redact import redact, redact_values
from llmexp.record.trackers.content import RunContent
from llmexp.record.trackers.files import TEXT_SUFFIXES
from llmexp.record.trackers.points import Point, Window

Param = str | float | bool
PNG = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True)
class TrackedFile:
    """A file of a run's folder, by its name there."""

    name: str
    path: Path

    def content(self) -> bytes:
        """Return what is in the file, with secrets hidden where it is a text."""
        found = self.path.read_bytes()
        if self.path.suffix not in TEXT_SUFFIXES:
            return found
        text = found.decode(errors="replace")
        clean = redact(text)
        return found if clean == text else clean.encode()

    @property
    def picture_size(self) -> tuple[int, int] | None:
        """Width and height of a PNG, which its first bytes hold; None for a file that is none."""
        if self.path.suffix != ".png":
            return None
        with self.path.open("rb") as file:
            begin = file.read(24)
        if len(begin) < 24 or not begin.startswith(PNG):
            return None
        width, height = struct.unpack(">II", begin[16:])
        return width, height


@dataclass(frozen=True)
class TrackedRun:
    """A run that has ended; known secrets are hidden in its texts, and in what its files return.

    A run that is measured again has the same `id` in its `sweep`, and another `digest`. `words` are the part of its
    `name` that tells it from other runs of its model and method. `metrics` are its final values. Its other values are
    `points`, each with `name`, `value`, `at_ms` (Unix time) and `step`. Values may be NaN or infinite.
    """

    id: str
    name: str
    words: str
    sweep: str
    task: str
    project: str
    """The name that tracking.experiment gives to what runs belong to."""
    status: str
    digest: str
    note: str
    """In Markdown: how it ended, and the command that repeats it."""
    tags: Mapping[str, str]
    params: Mapping[str, Param]
    window: Window
    """Its start_s and end_s, in Unix time."""
    metrics: Mapping[str, float]
    points: Sequence[Point]
    files: Sequence[TrackedFile]


class RunTracker(ABC):
    """A tracker that `tracking.also` names. It works in a process of its own, which a slow tracker loses.

    `library` is the module that it needs, if any, and `install` the command that installs it.
    """

    name: ClassVar[str]
    library: ClassVar[str] = ""
    install: ClassVar[str] = ""

    def check(self) -> None:
        """Raise ConfigError where it cannot work here; it is asked before anything starts."""
        if self.library and not _is_installed(self.library):
            raise ConfigError(
                f"tracking.also={self.name}: {self.library} is not installed: {self.install}, or leave {self.name} out"
            )

    @abstractmethod
    def write(self, run: TrackedRun, folder: Path) -> None:
        """Write a run into this empty folder, or send it elsewhere; any error is told in one line.

        The folder then replaces the one of an earlier copy. A run whose digest has not changed is not written again as
        long as its folder is there.
        """


def tracked_run(content: RunContent, project: str) -> TrackedRun:
    """Read all of a run; raises UnreadableError."""
    root = content.folder.path
    return TrackedRun(
        id=content.id,
        name=redact(content.name),
        words=redact(" ".join(content.words)),
        sweep=content.sweep,
        task=content.plan.config.task.name,
        project=project,
        status=content.state,
        digest=content.digest,
        note=redact(content.note),
        tags={name: _sound(value) for name, value in redact_values(content.tags).items()},
        params={name: _typed(value) for name, value in redact_values(content.params).items()},
        window=content.window,
        metrics={point.name: point.value for point in content.finals()},
        points=content.series(),
        files=[TrackedFile(path.relative_to(root).as_posix(), path) for path in content.files()],
    )


def _sound(text: str) -> str:
    """Return a text that can be written: a folder's name may hold bytes that are none."""
    return text.encode(errors="replace").decode()


def _typed(text: str) -> Param:
    """Return a finite number or a truth value as such, so that a tracker can sort by it."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, bool | int | float) and math.isfinite(value) else text


def _is_installed(library: str) -> bool:
    """Tell whether there is a library of this name, and not only a folder, as trackers make of their own name."""
    found = find_spec(library)
    return found is not None and found.origin is not None
