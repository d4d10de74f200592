"""Files that a configuration names by patterns."""

from __future__ import annotations

from collections.abc import Sequence
from glob import glob
from pathlib import Path

from llmexp.errors import ConfigError


def matching(patterns: Sequence[str], suffixes: Sequence[str] = ()) -> list[Path]:
    """Files that the patterns name, folders taken whole or those of their files that end so, sorted; raises ConfigError where nothing matches one."""
    found: list[Path] = []
    for pattern in patterns:
        matches = sorted(Path(match) for match in glob(str(Path(pattern).expanduser()), recursive=True))
        matched = [path for match in matches for path in (_inside(match, suffixes) if match.is_dir() else [match])]
        if not matched:
            raise ConfigError(f"data.files: nothing matches {pattern}")
        found += matched
    return found


def _inside(folder: Path, suffixes: Sequence[str]) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and (not suffixes or path.suffix in suffixes))
