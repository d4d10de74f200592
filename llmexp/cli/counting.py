"""The progress of long work in the driver itself, on standard error; short work prints nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")
FIRST_AFTER_S = 2.0
# A terminal shows one line that changes, other streams get new lines.
LIVING_EVERY_S, PLAIN_EVERY_S = 0.2, 10.0
_CLEARED = "\r\x1b[K"


def counted(doing: str, items: Sequence[Item]) -> Iterator[Item]:
    """Yield the items and say which one is in hand, first after two seconds."""
    living = sys.stderr.isatty()
    say_at_s = time.monotonic() + FIRST_AFTER_S
    try:
        for number, item in enumerate(items, start=1):
            if time.monotonic() >= say_at_s:
                line = f"llmexp: {doing} {number} of {len(items)}"
                print(f"{_CLEARED}{line}" if living else line, end="" if living else "\n", file=sys.stderr, flush=True)
                say_at_s = time.monotonic() + (LIVING_EVERY_S if living else PLAIN_EVERY_S)
            yield item
    finally:
        if living:
            print(_CLEARED, end="", file=sys.stderr, flush=True)
