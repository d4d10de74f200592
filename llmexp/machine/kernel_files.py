"""What the kernel writes about itself: its files, where there are such."""

from __future__ import annotations

from pathlib import Path


def lines(path: Path) -> list[str]:
    """Return a file's lines; none where there is no such file, or a kernel without the feature refuses to read it."""
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
