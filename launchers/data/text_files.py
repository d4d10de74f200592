"""Files of text: those that patterns name, or the sources of the running Python's own library."""

from __future__ import annotations

import sysconfig
from collections.abc import Sequence
from pathlib import Path

from llmexp.inputs.files import matching


def text_files(patterns: Sequence[str]) -> list[Path]:
    """Return the files that the patterns name, or without patterns the running Python's library sources."""
    return matching(patterns) if patterns else library_modules() + sorted(_library().glob("[a-z]*/*.py"))


def library_modules() -> list[Path]:
    """Return the modules of the running Python's library that are one file."""
    return sorted(_library().glob("*.py"))


def _library() -> Path:
    return Path(sysconfig.get_path("stdlib"))
