"""A loss of power: every process ends at once, and data not yet forced to the disk is gone or is zeros.

It is installed into every process of a sweep, and records what the process forces to the disk. SQLite's files are left
alone, because SQLite forces them by itself.
"""

from __future__ import annotations

import os
import random
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# The variable names a file of lines: inode and size of each file that was forced to the disk.
FORCED_FILE = "CHAOS_FORCED_FILE"
# After this time a kernel has written the data by itself (vm.dirty_expire_centisecs).
WRITTEN_AFTER_S = 30.0
SQLITE = "mlflow.db"


def install() -> None:
    """Record what this process forces to the disk."""
    told = os.environ.get(FORCED_FILE)
    if not told:
        return
    really = os.fsync

    def noted(fd: Any) -> None:
        really(fd)
        state = os.fstat(fd)
        with open(told, "a") as notes:
            notes.write(f"{state.st_ino} {state.st_size}\n")

    os.fsync = noted


def lose(folder: Path, notes: Path, chance: random.Random) -> None:
    """Take from every file below the folder what was not forced to the disk: its length, or its bytes."""
    lines = [line.split() for line in notes.read_text().splitlines()] if notes.exists() else []
    forced = {int(inode): int(size) for inode, size in lines}
    for path in _files(folder):
        state = path.stat()
        safe = min(forced.get(state.st_ino, 0), state.st_size)
        if safe == state.st_size or time.time() - state.st_mtime > WRITTEN_AFTER_S:
            continue
        os.truncate(path, safe)
        if chance.random() < 0.5:
            os.truncate(path, state.st_size)  # this fills with zeros


def _files(folder: Path) -> Iterator[Path]:
    return (
        path for path in folder.rglob("*") if stat.S_ISREG(path.lstat().st_mode) and not path.name.startswith(SQLITE)
    )
