from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from llmexp.launch.nodes.place import NodeError
from llmexp.launch.nodes.secret import make_secret, read_secret


def test_it_is_for_one_users_eyes_and_another_each_time(tmp_path: Path) -> None:
    sweep = tmp_path / "outputs" / "main"
    first = make_secret(sweep, 29400)
    assert read_secret(sweep, 29400) == first
    (path,) = sweep.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert make_secret(sweep, 29400) != first
    assert len(make_secret(sweep, 29401)) == 32
    assert len(list(sweep.iterdir())) == 2


def test_another_users_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_secret(tmp_path, 29400)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(NodeError, match=r"\.nodes\.29400 belongs to another user"):
        read_secret(tmp_path, 29400)


def test_a_link_is_neither_read_nor_written_through(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"mine")
    (tmp_path / ".nodes.29400").symlink_to(tmp_path / "key")
    with pytest.raises(OSError, match="symbolic links"):
        read_secret(tmp_path, 29400)
    make_secret(tmp_path, 29400)
    assert (tmp_path / "key").read_bytes() == b"mine"
