"""Readers of the ranks' printed output, which follow the logs while they grow."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

# The number of characters of a program's line that a message shows.
SHOWN = 100


@dataclass(frozen=True)
class Output:
    """The number of lines that the ranks of a program have printed, and the last line with its rank."""

    lines: int = 0
    last: str = ""
    rank: int = 0

    def __str__(self) -> str:
        if not self.lines:
            return "its ranks printed nothing"
        shown = self.last[:SHOWN] + "…" * (len(self.last) > SHOWN)
        return f"its ranks printed {self.lines} lines, the last of rank {self.rank}: {shown!r}"


class Appended:
    """A reader of the lines that were added to a file since the last read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0

    def read(self) -> list[bytes]:
        """Return new complete lines; a line that is still being written waits for the next read.

        A carriage return ends a line too, as progress bars use it.
        """
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                found = file.read()
        except FileNotFoundError:
            return []
        complete = found[: 1 + max(found.rfind(b"\n"), found.rfind(b"\r"))]
        self._offset += len(complete)
        return complete.splitlines()


class Logs:
    """The logs of all ranks of a repeat; blank lines do not count."""

    def __init__(self, repeat: Path) -> None:
        self._repeat = repeat
        self._logs: dict[Path, Appended] = {}
        self.output = Output()

    def read(self) -> Output:
        """Return what has been printed until now."""
        for path in sorted(self._repeat.glob("log.[0-9]*.txt")):
            if lines := lines_of(self._logs.setdefault(path, Appended(path))):
                self.output = Output(self.output.lines + len(lines), lines[-1], int(path.name.split(".")[1]))
        return self.output


def lines_of(log: Appended) -> list[str]:
    """Return the new lines that are not blank."""
    return [text for line in log.read() if (text := line.decode(errors="replace").strip())]
