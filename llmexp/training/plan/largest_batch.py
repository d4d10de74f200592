"""What a search for the largest batch needs: a limit that ends a rank, and ranks that llmexp starts."""

from __future__ import annotations

from llmexp.errors import ConfigError
from llmexp.training.config import TrainingConfig

# On cpu nothing ends a rank before the host's memory is gone, and other programs with it.
CPU_LIMIT_BYTES = 256_000_000


def searchable(config: TrainingConfig, *, builds_model: bool) -> TrainingConfig:
    """Return the configuration with the memory limit that batch.micro=max searches against on cpu, where none is set.

    Raises ConfigError where the largest batch cannot be searched for.
    """
    hardware, batch = config.hardware, config.batch
    if not batch.is_searched:
        return config
    if not builds_model:
        raise ConfigError(
            f"batch.micro=max searches with llmexp's own ranks, and engine={config.engine.name} runs your program: "
            f"list its batches, as in batch.micro=1,2,4,8"
        )
    if hardware.nodes > 1:
        raise ConfigError(
            f"batch.micro=max searches on one machine, and hardware.nodes={hardware.nodes}: list the batches, as in "
            "batch.micro=1,2,4,8"
        )
    if hardware.device != "cpu" or hardware.memory_limit_bytes:
        return config
    limited = hardware.model_copy(update={"memory_limit_bytes": CPU_LIMIT_BYTES})
    return config.model_copy(update={"hardware": limited})
