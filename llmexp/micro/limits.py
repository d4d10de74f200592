"""The limits of a machine: the highest rate of each kind that its points reached, as the metrics of the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llmexp.analysis.metric import Metrics, MetricSpec
from llmexp.analysis.quantity import Measurement
from llmexp.micro.families.base import Family, Limit
from llmexp.micro.plan.micro_plan import TIMES_CACHE, MicroPlan
from llmexp.micro.points import DATA, MicroRepeat, result_of
from llmexp.record.result import ResultPoint
from llmexp.record.what_ran import WhatRan
from llmexp.registry import families, get_family


@dataclass(frozen=True)
class HighestRate:
    """The function of a limit's metric: the highest rate among the points of its family and kind.

    Of memory only points count whose data no cache holds: else the limit would be the cache's rate.
    """

    family: Family[Any]
    limit: Limit

    @property
    def rate(self) -> str:
        """The name of the rate."""
        return self.limit.rate

    @property
    def is_of_memory(self) -> bool:
        """Tell whether memory limits these points."""
        return bool(self.family.memory(self.limit.kind))

    @property
    def params(self) -> dict[str, str]:
        """The parameters that all its points share."""
        dtype = {"dtype": self.limit.dtype} if self.limit.dtype else {}
        return {"family": self.family.name, "kind": self.limit.kind} | dtype

    def among(self, points: Sequence[ResultPoint]) -> list[ResultPoint]:
        """Return its points that were measured."""
        return [each for each in points if each.metrics.get(self.rate) and self.params.items() <= each.params.items()]

    def set_by(self, points: Sequence[ResultPoint], what_ran: WhatRan) -> ResultPoint | None:
        """Return the point with the highest rate; None where no such point was measured, or all are the cache's."""
        counted = [point for point in self.among(points) if not self.is_of_memory or is_beyond_cache(point, what_ran)]
        return max(counted, key=lambda point: _mean(point, self.rate), default=None)

    def __call__(self, repeat: MicroRepeat, plan: MicroPlan) -> Measurement | None:
        """Return the highest rate of a repeat; None where there is none."""
        points = [
            result_of(point, [ranks], plan.processes)
            for point, ranks in zip(plan.points, repeat.measured, strict=True)
            if self.params.items() <= point.params.items()
        ]
        found = self.set_by(points, repeat.ranks[0].what_ran if repeat.ranks else WhatRan())
        return Measurement(_mean(found, self.rate)) if found else None


def cache_bytes(point: ResultPoint, what_ran: WhatRan) -> int | None:
    """Return the size of the cache before the memory that limits a point; None where it is not known or none does."""
    known = what_ran.get("cache_bytes") or {}
    size = known.get(get_family(point.params["family"]).memory(point.params["kind"]))
    return size if isinstance(size, int) else None


def is_beyond_cache(point: ResultPoint, what_ran: WhatRan) -> bool:
    """Tell whether the data that a point's calls go through are known to be larger than the cache by TIMES_CACHE."""
    size = cache_bytes(point, what_ran)
    return size is not None and _mean(point, DATA) >= TIMES_CACHE * size


def _mean(point: ResultPoint, name: str) -> float:
    metric = point.metrics.get(name)
    return metric.mean if metric else 0.0


def _highest_rates() -> list[HighestRate]:
    """Return FLOP/s first, as the CSV has them."""
    found = [HighestRate(family, limit) for family in families() for limit in family.limits]
    return sorted(found, key=lambda highest: highest.rate != "flops_per_s")


def _metrics() -> Metrics:
    found = Metrics()
    for highest in _highest_rates():
        unit = "FLOP/s" if highest.rate == "flops_per_s" else "bytes/s"
        found.include(MetricSpec(highest.limit.name, highest, unit, "higher", highest.limit.meaning))
    return found


LIMITS = _metrics()
