"""The plan of a run of microbenchmarks: every point that its ranks measure, one after the other."""

from __future__ import annotations

from llmexp.micro.config import MicroRunConfig
from llmexp.micro.families.base import MicroPoint
from llmexp.record.plan import RunPlan

# A point whose inputs are in the cache measures the cache; its sets of inputs take this many times the cache's size.
TIMES_CACHE = 2


class MicroPlan(RunPlan):
    """The plan of task=micro; its samples are points."""

    sample_name = "point"

    config: MicroRunConfig
    points: list[MicroPoint]

    @property
    def name_fields(self) -> dict[str, str]:
        """The task and the name of its choice of points, such as limits."""
        return {"task": self.config.task.name, "points": self.config.micro.name}

    @property
    def comparison_key(self) -> dict[str, str]:
        """The properties that runs share whose points can be compared."""
        return super().comparison_key | {"model": self.config.model.name}

    @property
    def samples(self) -> int:
        """The number of points."""
        return len(self.points)

    @property
    def limit_s(self) -> float:
        """The limits of all points, of their warm-up and their samples."""
        measure = self.config.measure
        return len(self.points) * (measure.warmup_limit_s + measure.point_limit_s)

    @property
    def measured_samples(self) -> int:
        """The number of points; each has its own warm-up."""
        return len(self.points)
