"""`python -m llmexp` in a process of its own, and what it says in files."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from chaos.surroundings import Surroundings


class Driver:
    """One command line of llmexp, started."""

    def __init__(self, surroundings: Surroundings, words: list[str], log: Path) -> None:
        self.words, self.log = words, log
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                surroundings.llmexp(*words),
                env=surroundings.environment,
                cwd=surroundings.scratch,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )

    @property
    def pid(self) -> int:
        """Its process number."""
        return self._process.pid

    @property
    def lives(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, which it may be too late for."""
        self._process.send_signal(number)

    def ends_within(self, seconds: float) -> int | None:
        """Its exit code, None where it does not end in time."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    @property
    def said(self) -> str:
        """All that it printed."""
        return self.log.read_text(errors="replace")
