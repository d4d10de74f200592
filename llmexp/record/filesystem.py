"""What kind of filesystem holds a folder: SQLite is safe on one machine's disk only."""

from __future__ import annotations

import fcntl
import tempfile
from pathlib import Path

import psutil

NETWORK_FILESYSTEMS = (
    "nfs", "lustre", "gpfs", "beegfs", "fhgfs", "ceph", "cifs", "smb", "glusterfs", "afs", "9p", "sshfs", "s3fs", "juicefs", "wekafs", "panfs",
)  # fmt: skip
# What to do where it is not.
ELSEWHERE = "set MLFLOW_TRACKING_URI to a server, or tracking.uri=sqlite:////<local disk>/mlflow.db, or run with tracking=none and llmexp sync later"


def unsafe_for_sqlite(folder: Path) -> str | None:
    """Say why a SQLite store cannot be in a folder, which need not exist yet, or None. A network's locks may hold, but not SQLite's files."""
    there = nearest_existing(folder)
    kind = filesystem(there)
    if kind.removeprefix("fuse.").startswith(NETWORK_FILESYSTEMS):
        return f"{folder} lies on {kind}, where SQLite is not safe"
    return None if can_lock(there) else f"{folder} lies on {kind}, which cannot lock files, as SQLite must"


def nearest_existing(folder: Path) -> Path:
    """The folder, or the closest one above it that exists."""
    folder = folder.absolute()
    return next(path for path in (folder, *folder.parents) if path.exists())


def filesystem(folder: Path) -> str:
    """The type of the filesystem that holds a folder, as the mount table names it; 'unknown' where it does not."""
    mounts = {Path(mount.mountpoint): mount.fstype for mount in psutil.disk_partitions(all=True)}
    return next((mounts[path] for path in (folder.resolve(), *folder.resolve().parents) if path in mounts), "unknown")


def can_lock(folder: Path) -> bool:
    """Whether files there can be locked, by flock and by POSIX locks, which SQLite takes; a folder that cannot be written is another matter."""
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
