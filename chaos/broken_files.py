"""Makes files answer with an error: each call that opens, renames, makes or lists a path below the outputs fails.

It is installed into every process of a sweep. It stands in for faults that need a server or a privilege to be real: a
stale handle of NFS, a quota, a broken disk. Files that are already open still work.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

# ERROR_FILE names a file: while it exists, every path below the folder BELOW answers with the error of that number.
ERROR_FILE, BELOW = "CHAOS_ERROR_FILE", "CHAOS_BELOW"
_EVENTS = ("open", "os.rename", "os.mkdir", "os.truncate", "os.listdir", "os.scandir", "os.remove", "os.rmdir")


def install() -> None:
    """Watch every use of a path in this process."""
    told, below = os.environ.get(ERROR_FILE), os.environ.get(BELOW)
    if not told or not below:
        return

    def refuse(event: str, arguments: tuple[object, ...]) -> None:
        if event not in _EVENTS or not str(arguments[0]).startswith(below):
            return
        try:
            os.stat(told)
        except FileNotFoundError:
            return
        number = int(Path(told).read_text())
        raise OSError(number, os.strerror(number), arguments[0])

    sys.addaudithook(refuse)
