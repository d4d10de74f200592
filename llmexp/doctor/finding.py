"""The result of one check of `llmexp doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """The result of one check; `says` ends with what to do about it.

    fail: what is installed here is broken. warn: some runs or commands are impossible, or a measurement suffers.
    """

    level: Literal["ok", "warn", "fail"]
    what: str
    says: str
