"""Files as the artifacts of a run or a model, with secrets in texts hidden."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from llmexp.record.redact import redact
from llmexp.record.trackers.files import TEXT_SUFFIXES


@dataclass(frozen=True)
class Artifacts:
    """Where the artifacts of one run or model are kept.

    `folder` is their local folder, or None where MLflow itself has to copy them: it would copy them one by one, with a
    query to its database each time. `send` is MLflow's call for a file and its folder among the artifacts.
    """

    folder: Path | None
    send: Callable[[str, str | None], None]

    def copy(self, files: Mapping[str, Path]) -> None:
        """Copy files to artifacts of the given names."""
        for name, path in files.items():
            text = path.read_text(errors="replace") if path.suffix in TEXT_SUFFIXES else ""
            clean = redact(text)
            if clean != text:
                self.write(clean, name)
            elif self.folder:
                shutil.copyfile(path, _place(self.folder, name))
            else:
                self.send(str(path), name.rpartition("/")[0] or None)

    def write(self, text: str, name: str) -> None:
        """Write a text as an artifact."""
        if self.folder:
            _place(self.folder, name).write_text(text)
            return
        with TemporaryDirectory() as scratch:
            place = _place(Path(scratch), name)
            place.write_text(text)
            self.send(str(place), name.rpartition("/")[0] or None)


def _place(folder: Path, name: str) -> Path:
    place = folder / name
    place.parent.mkdir(parents=True, exist_ok=True)
    return place
