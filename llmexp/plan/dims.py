"""Degrees of parallelism against the world: one place where they are multiplied and divided."""

from __future__ import annotations

from llmexp.errors import ConfigError
from llmexp.record.result import Batch, Record
from llmexp.schema import RunConfig


class ParallelDims(Record):
    """Valid degrees; world_size = dp x tp x pp x cp."""

    dp: int
    tp: int
    pp: int
    cp: int
    ep: int

    @property
    def world_size(self) -> int:
        """Ranks in all."""
        return self.dp * self.tp * self.pp * self.cp

    @classmethod
    def of(cls, config: RunConfig) -> ParallelDims:
        """Take the degrees of a configuration; dp null fills the node. Raises ConfigError with the arithmetic."""
        degrees = config.parallelism
        model_parallel = degrees.tp * degrees.pp * degrees.cp
        devices = config.hardware.devices_per_node * config.hardware.nodes
        if degrees.dp is None and devices % model_parallel:
            raise ConfigError(
                f"parallelism: tp {degrees.tp} x pp {degrees.pp} x cp {degrees.cp} = {model_parallel} does not divide the {devices} devices of "
                f"hardware={config.hardware.name}; set parallelism.dp or degrees whose product divides {devices}"
            )
        dp = degrees.dp or devices // model_parallel
        _check_divides("tp", degrees.tp, "model.num_heads", config.model.num_heads)
        _check_divides("pp", degrees.pp, "model.num_layers", config.model.num_layers)
        _check_divides("cp", degrees.cp, "data.seq_len", config.data.seq_len)
        return cls(dp=dp, tp=degrees.tp, pp=degrees.pp, cp=degrees.cp, ep=degrees.ep)

    def batch(self, micro: int, accumulation: int) -> Batch:
        """Samples: per rank, passes a step, and over all replicas."""
        return Batch(micro=micro, accumulation=accumulation, global_=self.dp * micro * accumulation)


def _check_divides(name: str, degree: int, field: str, size: int | None) -> None:
    if size is not None and size % degree:
        valid = ", ".join(str(d) for d in range(1, min(size, 64) + 1) if size % d == 0)
        raise ConfigError(f"parallelism.{name}={degree} does not divide {field}={size}: choices are {valid}")
