"""A node's clock that is set while a sweep goes on: installed into every process of it, it shifts the time of day, and no other clock."""

from __future__ import annotations

import os
import time
from pathlib import Path

# Names a file whose text is the shift in seconds.
SHIFT_FILE = "CHAOS_CLOCK_FILE"
REAL_TIME = time.time


def install() -> None:
    """Shift what this process asks for the time of day."""
    told = os.environ.get(SHIFT_FILE)
    if not told:
        return
    file = Path(told)

    def shift_s() -> float:
        return float(file.read_text()) if file.exists() else 0.0

    time.time = lambda: REAL_TIME() + shift_s()
