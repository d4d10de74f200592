"""Where a tracker's copy of a run lies: outputs/<tracker>/<sweep>/<the run's folder>, with a mark of what it is of."""

from __future__ import annotations

import errno
import json
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from llmexp.errors import RecordError
from llmexp.record.folder import RunFolder
from llmexp.record.trackers.content import RunContent, read

MARK = ".llmexp.json"
# Two drivers that copy the same run at once take turns after two or three tries.
MOST_TRIES = 10


def outputs_of(folder: RunFolder) -> Path:
    """Return the folder of outputs that a run lies in."""
    return folder.path.resolve().parents[1]


def place_of(tracker: str, content: RunContent) -> Path:
    """Return the folder of a tracker's copy of a run."""
    return outputs_of(content.folder) / tracker / content.sweep / content.folder.path.name


def is_copied(tracker: str, folder: RunFolder) -> bool:
    """Tell whether a tracker has the run as it is now; errors of a folder are reported where it is copied."""
    try:
        content = read(folder)
        if content is None:
            return False
        return bool(json.loads((place_of(tracker, content) / MARK).read_text())["digest"] == content.digest)
    except (RecordError, OSError, ValueError, LookupError, TypeError):
        return False


@contextmanager
def scratch(tracker: str, outputs: Path) -> Iterator[Path]:
    """Make a hidden folder beside the tracker's, where copies are written, and remove it and what is left in it."""
    folder = outputs / f".{tracker}.{secrets.token_hex(8)}"
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def put(written: Path, content: RunContent, tracker: str, beside: Path) -> None:
    """Mark what was written and move it to its place; an earlier copy goes to `beside` and is removed.

    Raises RecordError where other drivers put theirs there each time.
    """
    (written / MARK).write_text(json.dumps({"id": content.id, "digest": content.digest}) + "\n")
    place = place_of(tracker, content)
    place.parent.mkdir(parents=True, exist_ok=True)
    for _ in range(MOST_TRIES):
        earlier = beside / secrets.token_hex(8)
        with suppress(FileNotFoundError):
            place.rename(earlier)
        shutil.rmtree(earlier, ignore_errors=True)
        try:
            written.rename(place)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            continue
        return
    raise RecordError(f"{place} is written by another driver at the same time")
