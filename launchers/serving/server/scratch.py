"""The folder of a server's passing files, on the disk for temporary files, which ends with the server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir

from llmexp.launchers.serving.server.container import lasting_name


@dataclass(frozen=True)
class Scratch:
    """A folder that a server's command makes where it names it, and that others remove."""

    path: Path

    @classmethod
    def of(cls, argv: Sequence[str], log: Path) -> Scratch | None:
        """Return the folder of the server whose output goes to this log; None where the command names none."""
        named = any("{scratch}" in word for word in argv)
        return cls(Path(gettempdir()) / f"{lasting_name(log)}-scratch") if named else None

    @property
    def ending(self) -> list[str]:
        """The command that removes it, for whoever outlives the server and all that it started."""
        return ["rm", "-rf", str(self.path)]
