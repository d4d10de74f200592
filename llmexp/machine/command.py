"""The output of a command of this machine, where the command is installed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping

_TIMEOUT_S = 20


def output(*command: str, variables: Mapping[str, str] | None = None, timeout_s: float = _TIMEOUT_S) -> str | None:
    """Return a command's standard output unchanged, or None where the command is missing, fails or hangs.

    `variables` are added to the environment of this process.
    """
    env = os.environ | (variables or {})
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            errors="replace",
            timeout=timeout_s,
            check=True,
            stdin=subprocess.DEVNULL,
            env=env,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout
