"""The limits of a machine: the highest rate of each kind that its points reached, as the metrics of the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from llmexp.analysis.metric import Metrics, MetricSpec
from llmexp.analysis.quantity import Measurement
from llmexp.micro.arithmetic import memory_of
from llmexp.micro.config import Collective
from llmexp.micro.plan.micro_plan import CACHES, TIMES_CACHE, MicroPlan
from llmexp.micro.points import DATA, MicroRepeat, result_of
from llmexp.record.result import ResultPoint

COPIES = {
    "host_to_device_pinned": "copies from pinned host memory to the device",
    "host_to_device_pageable": "copies from pageable host memory to the device",
    "device_to_host_pinned": "copies from the device to pinned host memory",
    "device_to_host_pageable": "copies from the device to pageable host memory",
    "device_to_device": "copies on the device",
}
ATTENTION = {
    "flash": "the fused kernel that torch prefers",
    "unfused": "attention in three steps",
    "fa2": "FlashAttention-2",
    "cudnn": "cuDNN's attention",
    "fa3": "FlashAttention-3",
    "fa4": "FlashAttention-4",
}


@dataclass(frozen=True)
class Limit:
    """The highest rate among the points of a family and kind, and of a dtype where it matters.

    Of memory only points count whose data no cache holds: else the limit would be the cache's rate.
    """

    name: str
    meaning: str
    rate: str
    family: str
    kind: str
    dtype: str = ""

    @property
    def is_of_memory(self) -> bool:
        """Tell whether memory limits these points."""
        return bool(memory_of(self.family, self.kind))

    @property
    def params(self) -> dict[str, str]:
        """The parameters that all its points share."""
        return {"family": self.family, "kind": self.kind} | ({"dtype": self.dtype} if self.dtype else {})

    def among(self, points: Sequence[ResultPoint]) -> list[ResultPoint]:
        """Return its points that were measured."""
        return [each for each in points if each.metrics.get(self.rate) and self.params.items() <= each.params.items()]

    def set_by(self, points: Sequence[ResultPoint], what_ran: Mapping[str, Any]) -> ResultPoint | None:
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
        found = self.set_by(points, repeat.ranks[0].what_ran if repeat.ranks else {})
        return Measurement(_mean(found, self.rate)) if found else None


def cache_bytes(point: ResultPoint, what_ran: Mapping[str, Any]) -> int | None:
    """Return the size of the cache before the memory that limits a point; None where it is not known or none does."""
    known = what_ran.get(CACHES) or {}
    size = known.get(memory_of(point.params["family"], point.params["kind"]))
    return size if isinstance(size, int) else None


def is_beyond_cache(point: ResultPoint, what_ran: Mapping[str, Any]) -> bool:
    """Tell whether the data that a point's calls go through are known to be larger than the cache by TIMES_CACHE."""
    size = cache_bytes(point, what_ran)
    return size is not None and _mean(point, DATA) >= TIMES_CACHE * size


def _mean(point: ResultPoint, name: str) -> float:
    metric = point.metrics.get(name)
    return metric.mean if metric else 0.0


def _limits() -> Iterator[Limit]:
    for dtype in ("fp32", "bf16"):
        yield Limit(f"gemm_{dtype}_flops_per_s", f"matrix products in {dtype}", "flops_per_s", "gemm", "gemm", dtype)
    for kernel, words in ATTENTION.items():
        for way in ("forward", "backward"):
            kind = f"{kernel}_{way}"
            yield Limit(
                f"attention_{kind}_flops_per_s",
                f"{words}, {way}, the causal half counted",
                "flops_per_s",
                "attention",
                kind,
            )
    yield Limit("memory_bytes_per_s", "STREAM's triad in the device's memory", "bytes_per_s", "memory", "triad")
    for kind, words in COPIES.items():
        yield Limit(f"{kind}_bytes_per_s", words, "bytes_per_s", "copies", kind)
    for kind in get_args(Collective):
        words = f"{kind.replace('_', '-')} of all ranks, bus bandwidth"
        yield Limit(f"{kind}_busbw_bytes_per_s", words, "busbw_bytes_per_s", "collectives", kind)
    for place in ("device", "host"):
        kind = f"adamw_on_{place}"
        yield Limit(f"{kind}_bytes_per_s", f"AdamW's step, states on the {place}", "bytes_per_s", "optimizer", kind)
    for kind in ("write", "read"):
        yield Limit(f"disk_{kind}_bytes_per_s", f"disk, {kind} past the page cache", "bytes_per_s", "disk", kind)


def _metrics() -> Metrics:
    found = Metrics()
    for limit in _limits():
        unit = "FLOP/s" if limit.rate == "flops_per_s" else "bytes/s"
        found.include(MetricSpec(limit.name, limit, unit, "higher", limit.meaning))
    return found


LIMITS = _metrics()
