"""What `llmexp doctor` says of one thing on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """fail: what is here is broken; warn: some runs or commands cannot be, or a measurement suffers. `says` ends with what to do."""

    level: Literal["ok", "warn", "fail"]
    what: str
    says: str
