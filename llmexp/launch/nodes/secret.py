"""The secret of one sweep's machines: random bytes in the folder that they share, readable by one user only."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from llmexp.launch.nodes.place import NodeError


def make_secret(sweep: Path, port: int) -> bytes:
    """Write a new secret for the machines that come to this port; raises OSError."""
    secret, path = secrets.token_bytes(32), _path(sweep, port)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
        file.write(secret)
    return secret


def read_secret(sweep: Path, port: int) -> bytes:
    """Return the present secret; raises NodeError where another user wrote it, OSError where there is none."""
    path = _path(sweep, port)
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
        if os.fstat(file.fileno()).st_uid != os.geteuid():
            raise NodeError(f"{path} belongs to another user: one user must start all nodes of a run")
        return file.read()


def _path(sweep: Path, port: int) -> Path:
    return sweep / f".nodes.{port}"
