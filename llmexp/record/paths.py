"""Questions about paths that are texts: where thousands are asked, pathlib's objects take most of the time."""

from __future__ import annotations

import errno
import os
from pathlib import Path

# A link to itself leads nowhere either.
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def is_there(path: str) -> bool:
    """Tell whether something is at a path, as Path.exists does: raises OSError where that cannot be told."""
    try:
        os.stat(path)
    except OSError as error:
        if error.errno not in _NOT_THERE:
            raise
        return False
    return True


def names_in(path: str) -> list[str]:
    """Return the names in a folder in any order; none where it is missing or may not be read."""
    try:
        return os.listdir(path)
    except (PermissionError, FileNotFoundError, NotADirectoryError):
        return []


def folders_in(path: str) -> list[str]:
    """Return the folders in a folder by name; none where it may not be read."""
    try:
        with os.scandir(path) as entries:
            return sorted(entry.path for entry in entries if _is_folder(entry))
    except (PermissionError, FileNotFoundError, NotADirectoryError):
        return []


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError as error:
        if error.errno not in _NOT_THERE:
            raise
        return False


class RealPaths:
    """Real paths, as Path.resolve gives them, of many paths of few folders, each of which is looked up once."""

    def __init__(self) -> None:
        self._folders: dict[str, str] = {}

    def of(self, path: Path) -> str:
        """Return the path without links."""
        text = str(path)
        folder, name = os.path.split(text)
        if name in ("", ".", "..") or os.path.islink(text):
            return os.path.realpath(text)
        if folder not in self._folders:
            self._folders[folder] = os.path.realpath(folder)
        return os.path.join(self._folders[folder], name)
