"""What a command of this machine answers, where there is one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping

_TIMEOUT_S = 20


def output(*command: str, variables: Mapping[str, str] | None = None, timeout_s: float = _TIMEOUT_S) -> str | None:
    """Return the standard output of a command as it is, or None where it is missing, fails or hangs; `variables` stand beside the shell's."""
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
