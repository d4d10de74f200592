"""Files in which the kernel describes itself; some systems do not have them."""

from __future__ import annotations

from pathlib import Path


def lines(path: Path) -> list[str]:
    """Return a file's lines; none where the file is missing, or the kernel lacks the feature and refuses to read it."""
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
