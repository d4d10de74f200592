"""The limits of a machine: the highest rate of each kind that its points reached, as the metrics of the run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import get_args

from llmexp.analysis.metric import Metrics, MetricSpec
from llmexp.analysis.quantity import Measurement
from llmexp.plan.micro_plan import MicroPlan, MicroPoint
from llmexp.schema.micro import Collective
from llmexp.tasks.micro.points import MicroRepeat, rates, slowest_rank

COPIES = {
    "host_to_device_pinned": "copies from pinned host memory to the device",
    "host_to_device_pageable": "copies from pageable host memory to the device",
    "device_to_host_pinned": "copies from the device to pinned host memory",
    "device_to_host_pageable": "copies from the device to pageable host memory",
    "device_to_device": "copies on the device",
}
ATTENTION = {"flash": "the flash kernel", "unfused": "attention in three steps"}


@dataclass(frozen=True)
class Limit:
    """The highest rate among the points of a family and kind, and of a dtype where it matters."""

    name: str
    meaning: str
    rate: str
    family: str
    kind: str
    dtype: str = ""

    def covers(self, point: MicroPoint) -> bool:
        """Tell whether the point can set this limit."""
        return (point.family, point.kind) == (self.family, self.kind) and self.dtype in ("", point.dtype)

    def __call__(self, repeat: MicroRepeat, plan: MicroPlan) -> Measurement | None:
        """Return the highest rate that was measured; None where no such point was."""
        found = [
            rates(point, slowest_rank(ranks).median_s, plan.processes)[self.rate]
            for point, ranks in zip(plan.points, repeat.measured, strict=True)
            if self.covers(point) and not any(sample.problem for sample in ranks)
        ]
        return Measurement(max(found)) if found else None


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
