"""The micro engine calls PyTorch's kernels and torch.distributed's collectives one by one, for task=micro."""

from __future__ import annotations

from llmexp.launch.commands import ranks_of
from llmexp.micro.config import MicroRunConfig
from llmexp.micro.engine import MicroEngine
from llmexp.record.plan import Command

WORKER = "llmexp.launchers.micro.worker"


class TorchKernels(MicroEngine):
    """An engine whose ranks call kernels of torch."""

    name = "micro"
    modules = ("torch",)
    distributions = ("torch", "triton")

    def command(self, config: MicroRunConfig, processes: int) -> Command:
        """Return the command that starts one node's ranks."""
        return ranks_of(config, processes, WORKER)


ENGINE = TorchKernels()
