"""The container of a server: a daemon starts its processes, so that only the container's program knows them."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from llmexp.record.port import HOST
from llmexp.serving.plan.server_plan import ContainerProgram

ASK_S = 30.0


def lasting_name(log: Path) -> str:
    """Return a name that is the same at every start of the same run, which ends first what a killed one has left."""
    return f"llmexp-{sha256(bytes(log.absolute())).hexdigest()[:12]}"


@dataclass(frozen=True)
class Container:
    """A container by its name; docker and podman take the same words."""

    program: ContainerProgram
    name: str

    @classmethod
    def of(cls, program: ContainerProgram | None, log: Path) -> Container | None:
        """Return the container whose output goes to this log; None without a program."""
        return cls(program, lasting_name(log)) if program else None

    @property
    def ending(self) -> list[str]:
        """The command that ends it: the end of the client that started it would leave it running."""
        return [self.program, "rm", "--force", self.name]

    def publishes(self, port: int) -> bool:
        """Tell whether a port of this machine is the container's, so that no other server is measured by mistake."""
        return f"{HOST}:{port}" in self._asked("port", self.name).split()

    def init_process(self) -> int | None:
        """Return the process above all others of the container, by its number on this machine; None where unknown."""
        told = self._asked("inspect", "--format", "{{.State.Pid}}", self.name).strip()
        return int(told) if told.isdigit() and int(told) else None

    def _asked(self, *words: str) -> str:
        try:
            done = subprocess.run(
                [self.program, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=ASK_S
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return done.stdout
