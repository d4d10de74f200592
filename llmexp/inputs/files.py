"""Functions that find the files that a configuration names by patterns, and digest their contents."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import cache
from glob import glob
from pathlib import Path

from llmexp.errors import ConfigError

# The digest of a larger file reads only this many parts, evenly spread: planning must not read a whole corpus.
PARTS, PART_BYTES = 64, 2**20


def matching(patterns: Sequence[str], suffixes: Sequence[str] = (), key: str = "data.files") -> list[Path]:
    """Return the sorted files that each pattern of a key names; raise ConfigError for one that matches nothing.

    A folder stands for all files in it, or for those with one of the suffixes.
    """
    found: list[Path] = []
    for pattern in patterns:
        matches = sorted(Path(match) for match in glob(str(Path(pattern).expanduser()), recursive=True))
        matched = [path for match in matches for path in (_inside(match, suffixes) if match.is_dir() else [match])]
        if not matched:
            raise ConfigError(f"{key}: nothing matches {pattern}")
        for path in matched:
            check_regular(key, path)
        found += matched
    return found


def check_place(key: str, place: str) -> None:
    """Raise ConfigError where a path does not exist; a place that does not look like a path may be a hub name."""
    if (place.startswith((".", "~")) or Path(place).is_absolute()) and not Path(place).expanduser().exists():
        raise ConfigError(f"{key}={place}: no such file or folder")


def check_regular(key: str, path: Path) -> None:
    """Raise ConfigError for a pipe, a device or a socket, which would be waited for or have no end."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise ConfigError(f"{key}: {path} is not a regular file")


def below(place: Path) -> list[Path]:
    """Return a file, or all files of a folder; the list is empty where nothing is there."""
    return _inside(place, ()) if place.is_dir() else [path for path in (place,) if path.exists()]


def digest(paths: Iterable[Path]) -> str:
    """Hash the contents of files, in their order, to 12 hexadecimal digits; raise ConfigError for an unreadable file.

    A file over 64 MiB counts by its size and 64 parts. A file is read again only after it has changed.
    """
    paths = list(paths)
    for path in paths:
        check_regular("data", path)
    try:
        found = [_digest(path, (state := path.stat()).st_size, state.st_mtime_ns) for path in paths]
    except OSError as error:
        raise ConfigError(f"data: {error.filename} cannot be read: {error.strerror}") from None
    return hashlib.sha256("".join(found).encode()).hexdigest()[:12]


@cache
def _digest(path: Path, size: int, _changed_ns: int) -> str:
    found = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        for part in range(PARTS):
            if size > PARTS * PART_BYTES:
                file.seek(part * (size - PART_BYTES) // (PARTS - 1))
            found.update(file.read(PART_BYTES))
    return found.hexdigest()


def _inside(folder: Path, suffixes: Sequence[str]) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and (not suffixes or path.suffix in suffixes))
