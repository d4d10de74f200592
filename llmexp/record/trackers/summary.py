"""How many runs were copied to a tracker."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class SyncSummary:
    """The numbers of runs that were written, were there already, or have not ended; and why folders are unreadable."""

    written: int = 0
    unchanged: int = 0
    not_ended: int = 0
    unreadable: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        counts = f"{self.written} recorded, {self.unchanged} unchanged"
        counts += f", {self.not_ended} not ended" if self.not_ended else ""
        return counts + (f", {len(self.unreadable)} unreadable" if self.unreadable else "")
