"""The plan of a run of microbenchmarks: every point that its ranks measure, one after the other."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from llmexp.micro.config import MicroRunConfig
from llmexp.record.plan import RunPlan
from llmexp.record.samples import Record

# A point whose inputs are in the cache measures the cache; its sets of inputs take this many times the cache's size.
TIMES_CACHE = 2
# Where the caches' sizes in bytes stand in what ran, and the places that have one; None where it is not known.
CACHES, DEVICE, HOST = "cache_bytes", "device", "host"
# Value, gradient and two moments in fp32.
ADAMW_BYTES_PER_PARAMETER = 4 * 4


class MicroPoint(Record):
    """One thing to measure: its family, what of it, the dtype where it has one, and its sizes by name.

    Sizes are counts (m, n, k, seq_len, parameters, …) or bytes.
    """

    family: str
    kind: str
    dtype: str = ""
    sizes: dict[str, int] = Field(default_factory=dict)

    @property
    def params(self) -> dict[str, Any]:
        """The point as the parameters of a result's point."""
        dtype = {"dtype": self.dtype} if self.dtype else {}
        return {"family": self.family, "kind": self.kind} | dtype | self.sizes

    def __str__(self) -> str:
        sizes = " ".join(f"{name}={size}" for name, size in self.sizes.items())
        return " ".join(filter(None, (self.kind, self.dtype, sizes)))


class MicroPlan(RunPlan):
    """The plan of task=micro; its samples are points."""

    sample_name = "point"

    config: MicroRunConfig
    points: list[MicroPoint]

    @property
    def subject(self) -> dict[str, str]:
        """The task and the name of its choice of points, such as limits."""
        return {"task": self.config.task.name, "points": self.config.micro.name}

    @property
    def work(self) -> dict[str, str]:
        """The properties that runs share whose points can be compared."""
        return super().work | {"model": self.config.model.name}

    @property
    def samples(self) -> int:
        """The number of points."""
        return len(self.points)

    @property
    def measured_samples(self) -> int:
        """The number of points; each has its own warm-up."""
        return len(self.points)
