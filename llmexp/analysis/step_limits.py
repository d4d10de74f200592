"""What bounds a step, and what it would take at the limits that task=micro measured on the same machine.

docs/micro.md says what is assumed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import fmean

from llmexp.record.breakdown import Breakdown, RunBreakdown
from llmexp.record.collectives import bus_factor, collective_kind
from llmexp.record.counted import AttentionTime, GemmTime

COUNTED, OTHER, COMMUNICATION, COPIES = "products and attention", "other computation", "communication", "copies"
HOST, WAITING, UNEXPLAINED = "the host came too late", "work was queued already", "idle, unexplained"
PARTS = (COUNTED, OTHER, COMMUNICATION, COPIES, HOST, WAITING, UNEXPLAINED)
# Two shares that are nearer to each other may change places from run to run: on a virtual machine with two CPU ranks,
# shares of eight runs had standard deviations of 0.9 to 4.6 points.
NEAR = 0.15
# Of the products' operations, so many have to be of dtypes whose limit is known.
MOSTLY = 0.99
_COPIES = {"HtoD": "host_to_device", "DtoH": "device_to_host"}


@dataclass(frozen=True)
class Part:
    """A part of the step: its share of the profiled time, and its seconds a step at the limit, None where unknown.

    Communication and copies count in `share` where nothing hides them, and in `at_limit_s` all in all.
    """

    name: str
    share: float
    at_limit_s: float | None = None


@dataclass(frozen=True)
class StepLimits:
    """A step in seconds, as it was measured or else profiled, and its parts; shares add up to 1."""

    step_s: float
    parts: tuple[Part, ...]

    @property
    def bounds(self) -> list[str]:
        """The parts that take most of the step: the largest, and those whose share is near to it."""
        largest = max(part.share for part in self.parts)
        near = [part for part in self.parts if part.share > largest - NEAR]
        return [part.name for part in sorted(near, key=lambda part: -part.share)]

    @property
    def best_s(self) -> float | None:
        """The seconds of a step that nothing but the limits holds up; None without a limit of computation.

        Products and attention run at their limit and other computation as it did, while communication and copies at
        their limits are hidden behind them, as far as they are not longer.
        """
        products, other = self.part(COUNTED), self.part(OTHER)
        if products is None or products.at_limit_s is None:
            return None
        computing_s = products.at_limit_s + (other.share if other else 0.0) * self.step_s
        beside = filter(None, (self.part(COMMUNICATION), self.part(COPIES)))
        return max(computing_s, *(part.at_limit_s or 0.0 for part in beside), 0.0)

    def part(self, name: str) -> Part | None:
        """Return the part of this name; None where the step has none."""
        return next((part for part in self.parts if part.name == name), None)


def step_limits(found: RunBreakdown, measured_step_s: float | None) -> StepLimits:
    """Divide a run's profiled step by what it waited for, as means over ranks."""
    limits = found.calibration.limits if found.calibration else {}
    profiled_s = fmean(rank.window_ns / rank.counted_steps / 1e9 for rank in found.ranks)
    parts = [
        Part(COUNTED, _share(found, _counted_ns), _products_s(found, limits)),
        Part(OTHER, _share(found, lambda rank: rank.compute_ns - _counted_ns(rank))),
        Part(COMMUNICATION, _share(found, lambda rank: rank.exposed_communication_ns), _collectives_s(found, limits)),
        Part(COPIES, _share(found, lambda rank: rank.exposed_copy_ns), _copies_s(found, limits)),
        Part(HOST, _share(found, lambda rank: rank.idle_late_ns)),
        Part(WAITING, _share(found, lambda rank: rank.idle_queued_ns)),
        Part(UNEXPLAINED, _share(found, lambda rank: rank.idle_unexplained_ns)),
    ]
    return StepLimits(measured_step_s or profiled_s, tuple(part for part in parts if part.share or part.at_limit_s))


def _share(found: RunBreakdown, of: Callable[[Breakdown], int]) -> float:
    return fmean(of(rank) / rank.window_ns for rank in found.ranks)


def _counted_ns(rank: Breakdown) -> int:
    return min(rank.counted_ns, rank.compute_ns)


def _products_s(found: RunBreakdown, limits: Mapping[str, float]) -> float | None:
    """Return the seconds of a step's products and attention at their limits."""
    each = [_products_of_rank(rank, limits) for rank in found.ranks]
    known = [seconds for seconds in each if seconds is not None]
    return fmean(known) if known and len(known) == len(each) else None


def _products_of_rank(rank: Breakdown, limits: Mapping[str, float]) -> float | None:
    costliest: list[GemmTime | AttentionTime] = [*rank.gemms, *rank.attention]
    work = [(counted.flops, flops_limit(counted, limits)) for counted in costliest]
    known = [(flops, limit) for flops, limit in work if limit]
    flops_known = sum(flops for flops, _ in known)
    if not flops_known or flops_known < MOSTLY * sum(flops for flops, _ in work):
        return None
    # The breakdown keeps the costliest shapes; the others are taken to be like them.
    seconds = sum(flops / limit for flops, limit in known) * max(1.0, rank.counted_flops / flops_known)
    return seconds / rank.counted_steps


def flops_limit(counted: GemmTime | AttentionTime, limits: Mapping[str, float]) -> float | None:
    """Return the FLOP/s that task=micro reached with such work; products are the limit of attention without its own."""
    products = limits.get(f"gemm_{counted.dtype}_flops_per_s")
    if isinstance(counted, GemmTime):
        return products
    return limits.get(f"attention_flash_{'backward' if counted.backward else 'forward'}_flops_per_s", products)


def _collectives_s(found: RunBreakdown, limits: Mapping[str, float]) -> float | None:
    """Return the seconds of a step's collectives at their limits; None where one is not known."""
    kinds = {collective_kind(collective.name) for collective in found.collectives}
    each = [_collective_s(kind or "", found, limits) for kind in kinds]
    known = [seconds for seconds in each if seconds is not None]
    return sum(known) / found.ranks[0].counted_steps if known and len(known) == len(each) else None


def _collective_s(kind: str, found: RunBreakdown, limits: Mapping[str, float]) -> float | None:
    moved, limit = found.moved_bytes.get(kind), limits.get(f"{kind}_busbw_bytes_per_s")
    return moved * bus_factor(kind, found.processes) / limit if moved and limit else None


def _copies_s(found: RunBreakdown, limits: Mapping[str, float]) -> float | None:
    """Return the seconds of a step's copies between host and device at their limits."""
    copied = [
        sum(kernel.copied_bytes / limit for kernel in rank.kernels if (limit := _copy_limit(kernel.name, limits)))
        for rank in found.ranks
    ]
    return fmean(s / rank.counted_steps for s, rank in zip(copied, found.ranks, strict=True)) if any(copied) else None


def _copy_limit(name: str, limits: Mapping[str, float]) -> float | None:
    """Return the limit of copies with the name that CUDA's profiler gives them, such as Memcpy HtoD (Pinned -> …)."""
    way = next((way for short, way in _COPIES.items() if short in name), None)
    kind = "pageable" if "Pageable" in name else "pinned"
    return limits.get(f"{way}_{kind}_bytes_per_s") if way else None
