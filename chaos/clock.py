"""Sets a node's clock while a sweep runs: it shifts the time of day, and no other clock.

It is installed into every process of the sweep.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

# The variable names a file whose text is the shift in seconds.
SHIFT_FILE = "CHAOS_CLOCK_FILE"
REAL_TIME = time.time


def install() -> None:
    """Shift the time of day that this process reads."""
    told = os.environ.get(SHIFT_FILE)
    if not told:
        return
    file = Path(told)

    def shift_s() -> float:
        return float(file.read_text()) if file.exists() else 0.0

    time.time = lambda: REAL_TIME() + shift_s()
