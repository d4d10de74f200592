"""The interface that the engine of any task has for the planner and for the launch of its ranks."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from llmexp.record.plan import RunPlan
from llmexp.schema import RunConfig

C = TypeVar("C", bound=RunConfig)


@dataclass(frozen=True)
class ServerSoftware:
    """What has to be installed for a server, or another program, that the ranks start, and where."""

    python: str | None
    """The interpreter of the server's own environment; None: the ranks' own."""
    modules: tuple[str, ...]
    """The modules without which the server cannot start."""
    installed_by: str
    """How a person installs it, in one line."""
    check: tuple[str, ...] = ()
    """A command that fails where a server that is no module of Python is not installed."""
    does: str = "start its server"
    """What the engine cannot do without it."""
    beside_ranks: bool = False
    """What is measured depends on the ranks' own libraries of the same names too."""


class Engine(ABC, Generic[C]):
    """An engine decides everything before the run; its worker in `launchers/` only does what the plan says.

    Each task has a subclass of its own for its engines.
    """

    name: ClassVar[str]
    tasks: ClassVar[tuple[str, ...]]
    """The names of the tasks that the engine does."""
    modules: ClassVar[tuple[str, ...]]
    """The modules without which no run's ranks can start."""
    distributions: ClassVar[tuple[str, ...]]
    """The Python distributions whose versions affect what is measured; they are part of the result's stack."""

    launchers: ClassVar[tuple[str, ...]] = ("spawn", "torchrun")
    """The values of engine.launcher that can start it."""

    extras: ClassVar[str] = "train"
    """The extras of llmexp that install `modules`."""

    without_compiling: ClassVar[str] = ""
    """The words with which an engine whose ranks compile code by default compiles none."""

    def needed_modules(self, config: C) -> tuple[str, ...]:
        """Return the modules that the ranks of this run import."""
        return self.modules

    def server_software(self, config: C) -> ServerSoftware | None:
        """Return what the server of this run consists of; None where the ranks start no server.

        The versions of `distributions` are then those in the server's interpreter.
        """
        return None

    def unbuildable(self, plan: RunPlan) -> str | None:
        """Say what this machine lacks to build what the ranks of this run load and is not built yet, or None."""
        return None

    def prepare(self, plan: RunPlan) -> dict[str, str]:
        """Build what the ranks of this run load, unless it is built; return environment variables for them.

        Raises BuildError.
        """
        return {}

    def clean_up(self, plan: RunPlan, folder: Path) -> None:
        """Remove what ranks that were killed have left on this node outside `folder`, that of the run's records."""

    def advice(self, config: C, reason: str) -> str:
        """Say what a person can do about a run that failed for this reason; return "" where no advice is known."""
        return ""
