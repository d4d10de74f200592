"""The micro engine calls PyTorch's kernels and torch.distributed's collectives one by one, for task=micro."""

from __future__ import annotations

from llmexp.engines.base import Engine
from llmexp.engines.commands import ranks_of
from llmexp.record.plan import Command
from llmexp.schema import MicroRunConfig

WORKER = "llmexp.launchers.micro.worker"


class MicroEngine(Engine[MicroRunConfig]):
    """An engine whose ranks measure all points at the same time, one point after the other."""

    name = "micro"
    tasks = ("micro",)
    modules = ("torch",)
    distributions = ("torch", "triton")

    def command(self, config: MicroRunConfig, processes: int) -> Command:
        """Return the command that starts one node's ranks."""
        return ranks_of(config, processes, WORKER)


ENGINE = MicroEngine()
