"""Files that answer with an error: installed into every process of a sweep, it refuses what opens, renames, makes or lists a path below the outputs.

This stands in for what needs a server or a privilege to be real: a stale handle of NFS, a quota, a broken disk. Files that are open already go on.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

# Names a file: while it exists, its text is the number of the error that every path below the named folder answers with.
ERROR_FILE, BELOW = "CHAOS_ERROR_FILE", "CHAOS_BELOW"
_EVENTS = ("open", "os.rename", "os.mkdir", "os.truncate", "os.listdir", "os.scandir", "os.remove", "os.rmdir")


def install() -> None:
    """Look at every use of a path in this process."""
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
