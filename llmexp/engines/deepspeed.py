"""DeepSpeed: the native configuration for every combination of ZeRO, offload and precision."""

from __future__ import annotations

import sys
from typing import Any

from llmexp.engines.base import Engine
from llmexp.method import Techniques
from llmexp.plan.dims import ParallelDims
from llmexp.plan.run_plan import Command
from llmexp.schema import RunConfig

WORKER = "llmexp.launchers.deepspeed"


class DeepSpeedEngine(Engine):
    """Data parallelism with ZeRO 0 to 3."""

    name = "deepspeed"
    distributions = ("deepspeed", "torch", "transformers", "bitsandbytes", "flash-attn", "triton")

    def unsupported(self, config: RunConfig, techniques: Techniques, dims: ParallelDims) -> str | None:
        """Only data parallelism so far."""
        other = {"tp": dims.tp, "pp": dims.pp, "cp": dims.cp, "ep": dims.ep}
        wide = [f"{name}={degree}" for name, degree in other.items() if degree > 1]
        if wide:
            return f"engine=deepspeed runs data parallelism only, not {', '.join(wide)}"
        return None

    def native_config(self, config: RunConfig, techniques: Techniques, dims: ParallelDims) -> dict[str, Any]:
        """The dictionary that deepspeed.initialize takes."""
        return {}

    def command(self, config: RunConfig, dims: ParallelDims) -> Command:
        """Start torchrun or the deepspeed launcher with one rank a device."""
        ranks = str(dims.world_size)
        if config.engine.launcher == "torchrun":
            start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", ranks, "-m"]
        else:
            start = [sys.executable, "-m", "deepspeed.launcher.runner", "--num_gpus", ranks, "--module"]
        return Command(argv=[*start, WORKER, "{folder}"], env=dict(config.hardware.environment))


ENGINE = DeepSpeedEngine()
