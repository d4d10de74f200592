"""Checks of the filesystem that holds a folder: SQLite is safe only on a machine's own disk."""

from __future__ import annotations

import fcntl
import tempfile
from pathlib import Path

import psutil

NETWORK_FILESYSTEMS = (
    "nfs", "lustre", "gpfs", "beegfs", "fhgfs", "ceph", "cifs", "smb", "glusterfs", "afs", "9p", "sshfs", "s3fs",
    "juicefs", "wekafs", "panfs",
)  # fmt: skip
# The advice for a filesystem where SQLite is not safe.
ELSEWHERE = (
    "set MLFLOW_TRACKING_URI to a server, or tracking.uri=sqlite:////<local disk>/mlflow.db, "
    "or run with tracking=none and llmexp sync later"
)


def unsafe_for_sqlite(folder: Path) -> str | None:
    """Say why a SQLite store cannot be in a folder, or return None where it can; the folder need not exist yet.

    A network filesystem is refused even where its locks work: SQLite's files are still not safe there.
    """
    there = nearest_existing(folder)
    kind = filesystem(there)
    if kind.removeprefix("fuse.").startswith(NETWORK_FILESYSTEMS):
        return f"{folder} is on {kind}, where SQLite is not safe"
    return None if can_lock(there) else f"{folder} is on {kind}, which cannot lock files as SQLite needs"


def nearest_existing(folder: Path) -> Path:
    """Return the folder, or the closest one above it that exists."""
    folder = folder.absolute()
    return next(path for path in (folder, *folder.parents) if path.exists())


def filesystem(folder: Path) -> str:
    """Return the mount table's name for the type of a folder's filesystem; 'unknown' where it has none."""
    mounts = {Path(mount.mountpoint): mount.fstype for mount in psutil.disk_partitions(all=True)}
    return next((mounts[path] for path in (folder.resolve(), *folder.resolve().parents) if path in mounts), "unknown")


def can_lock(folder: Path) -> bool:
    """Tell whether files in a folder can be locked, by flock and by the POSIX locks that SQLite takes.

    The answer is also True where the folder cannot be written to: that is not a question of locks.
    """
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            return _lock(file.fileno())
    except OSError:
        return True


def _lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
