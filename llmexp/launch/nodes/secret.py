"""What only the machines of one sweep know: some bytes in its folder, which they share, for the eyes of one user."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from llmexp.launch.nodes.place import NodeError


def make_secret(sweep: Path, port: int) -> bytes:
    """Leave a new one for those that come to this port; raises OSError."""
    secret, path = secrets.token_bytes(32), _path(sweep, port)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
        file.write(secret)
    return secret


def read_secret(sweep: Path, port: int) -> bytes:
    """The one that is there now; raises NodeError where another user wrote it, OSError where none has."""
    path = _path(sweep, port)
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
        if os.fstat(file.fileno()).st_uid != os.geteuid():
            raise NodeError(f"{path} is another user's: the nodes of a run are one user's")
        return file.read()


def _path(sweep: Path, port: int) -> Path:
    return sweep / f".nodes.{port}"
