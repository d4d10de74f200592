"""What a command of this machine answers, where there is one."""

from __future__ import annotations

import subprocess

_TIMEOUT_S = 20


def output(*command: str) -> str | None:
    """The standard output of a command as it is, or None where it is missing, fails or hangs."""
    try:
        done = subprocess.run(command, capture_output=True, errors="replace", timeout=_TIMEOUT_S, check=True, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout
