"""Writing the files of a run's folder so that a reader, and whoever comes after a power failure, finds them whole."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path


def write_atomically(path: Path, text: str) -> None:
    """Write a file by rename within its folder; missing parents are created."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_for(path)
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())  # without this, a power failure may leave the name without the text
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def force_to_disk(paths: Iterable[Path]) -> None:
    """Force what was written to these files to disk, so that it survives a power failure where the filesystem can."""
    for path in paths:
        with contextlib.suppress(OSError), path.open("rb") as file:
            os.fsync(file.fileno())


def temporary_for(path: Path) -> Path:
    """Return a hidden name beside `path` that no other process uses or can guess, on this or any other host."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}")


def now() -> str:
    """Return the present time in ISO 8601, UTC, with milliseconds."""
    return datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="milliseconds")
