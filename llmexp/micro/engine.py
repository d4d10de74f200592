"""The interface of the engines that call kernels one by one."""

from __future__ import annotations

from abc import abstractmethod

from llmexp.micro.config import MicroRunConfig
from llmexp.record.plan import Command
from llmexp.tasks.engine import Engine


class MicroEngine(Engine[MicroRunConfig]):
    """An engine whose ranks measure all points at the same time, one point after the other."""

    tasks = ("micro",)

    @abstractmethod
    def command(self, config: MicroRunConfig, processes: int) -> Command:
        """Return the command that starts one node's ranks."""
