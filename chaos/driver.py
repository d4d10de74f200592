"""`python -m llmexp` in its own process, with its output in files."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from functools import cache
from pathlib import Path

import psutil

from chaos.surroundings import IDLE_S, LOOK_EVERY_S, Surroundings
from llmexp.machine.standstill import StandstillWatch

READ_WITHIN_S = 2.0
# A whole episode takes a tenth of it: what computes longer will not end.
MOST_CPU_S = 600.0
# The words to put before a command, so that it starts in that place.
Place = tuple[str, ...]
HERE: Place = ()
OWN_HOST_NAME = ("unshare", "--uts")
OWN_NAMESPACES = ("unshare", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child")
# The user nobody, who may still read the interpreter and the libraries, wherever they are installed.
_READING = "-all,+dac_read_search"
ANOTHER_USER = (
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    f"--inh-caps={_READING}",
    f"--ambient-caps={_READING}",
)


@cache
def can_start(place: Place) -> bool:
    """Say whether this user may start something at the place."""
    try:
        return subprocess.run([*place, "true"], capture_output=True).returncode == 0
    except OSError:
        return False


class Driver:
    """A command line of llmexp that is started at a `place`: with its own host name, namespaces or user.

    Its output goes through a pipe.
    """

    def __init__(self, surroundings: Surroundings, words: list[str], log: Path, place: Place) -> None:
        self.words, self.log, self.place = words, log, place
        with log.open("wb") as file:
            self._reader = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=file)
        output = self._reader.stdin
        assert output
        with output:
            self._process = psutil.Popen(
                [*place, *surroundings.llmexp(*words)],
                env=surroundings.environment,
                cwd=surroundings.scratch,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                umask=0,  # another user may change what one user has made
            )

    @property
    def pid(self) -> int:
        """The process number on this host, also after the end."""
        with suppress(psutil.NoSuchProcess):
            if self.place == OWN_NAMESPACES and (inner := self._process.children()):
                return inner[0].pid
        return self._process.pid

    @property
    def lives(self) -> bool:
        """Say whether the driver still runs."""
        return self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Send the driver a signal; it may have ended already."""
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            os.kill(self.pid, number)

    def close_output(self) -> None:
        """Stop the reader of the driver's output."""
        self._reader.kill()

    def rename_host(self, name: str) -> bool:
        """Give the driver's host another name; return False where it has no host name of its own."""
        if self.place not in (OWN_HOST_NAME, OWN_NAMESPACES):
            return False
        return (
            subprocess.run(
                ["nsenter", f"--uts=/proc/{self.pid}/ns/uts", "hostname", name], capture_output=True
            ).returncode
            == 0
        )

    def ends_within(self, seconds: float) -> int | None:
        """Return the exit code, or None where the driver does not end in time."""
        try:
            code: int = self._process.wait(seconds)
        except (subprocess.TimeoutExpired, psutil.TimeoutExpired):
            return None
        with suppress(subprocess.TimeoutExpired):
            self._reader.wait(READ_WITHIN_S)
        return code

    def ends(self) -> int | None:
        """Return the exit code, or None where the driver and what it started stand still, or compute in vain."""
        watch = StandstillWatch(self._process.pid, IDLE_S)
        while (code := self.ends_within(LOOK_EVERY_S)) is None:
            if watch.stands_still() or watch.computed_s() > MOST_CPU_S:
                return None
        return code

    @property
    def said(self) -> str:
        """Everything that the driver printed."""
        return self.log.read_text(errors="replace")
