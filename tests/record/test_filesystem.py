from __future__ import annotations

import errno
import fcntl
from collections.abc import Callable
from pathlib import Path

import pytest

from llmexp.record.filesystem import filesystem, unsafe_for_sqlite


@pytest.mark.parametrize("kind", ["nfs4", "lustre", "fuse.sshfs", "smb3"])
def test_sqlite_is_unsafe_on_a_network_whether_or_not_locks_hold_there(
    tmp_path: Path, mounted: Callable[[str], None], kind: str
) -> None:
    mounted(kind)
    assert unsafe_for_sqlite(tmp_path / "not" / "yet") == f"{tmp_path}/not/yet is on {kind}, where SQLite is not safe"


def test_sqlite_is_safe_on_a_disk_that_is_here(tmp_path: Path, mounted: Callable[[str], None]) -> None:
    mounted("xfs")
    assert unsafe_for_sqlite(tmp_path) is None


@pytest.mark.parametrize("kind_of_lock", ["flock", "lockf"])
def test_sqlite_is_unsafe_where_files_cannot_be_locked(
    tmp_path: Path, mounted: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, kind_of_lock: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    mounted("fuse.other")
    monkeypatch.setattr(fcntl, kind_of_lock, refuse)
    assert unsafe_for_sqlite(tmp_path) == f"{tmp_path} is on fuse.other, which cannot lock files as SQLite needs"


def test_the_innermost_mount_names_the_filesystem(tmp_path: Path, mounted: Callable[[str], None]) -> None:
    mounted("tmpfs")
    assert filesystem(tmp_path) == "tmpfs"
    assert filesystem(tmp_path.parent) == "ext4"
