"""Files of a run's folder that trackers copy."""

from __future__ import annotations

import re
from pathlib import Path

# Files in which secrets are hidden wherever they are copied.
TEXT_SUFFIXES = (".json", ".jsonl", ".txt", ".md", ".csv", ".log", ".diff")
# A server refuses or changes other names: '#', '%23' and a line's end stand for something else in its addresses.
_NAME = re.compile(r"[\w.+=@, ()-]+")


def files_below(root: Path) -> dict[str, Path]:
    """Return all files below a folder by their names there.

    Unfinished writes, links, which may lead out of the folder, and names that no server takes are left out.
    """
    found = (path for path in sorted(root.rglob("*")) if path.is_file() and not path.is_symlink())
    named = {path.relative_to(root): path for path in found if not path.name.startswith(".")}
    return {name.as_posix(): path for name, path in named.items() if all(map(_NAME.fullmatch, name.parts))}
