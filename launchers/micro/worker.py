"""The rank process of task=micro: it measures every point of the plan, together with the other ranks."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from llmexp.launchers.micro.case import Case, CasePlace
from llmexp.launchers.micro.graphs import IN_A_GRAPH, graph_of
from llmexp.launchers.rank.frame import Rank, device_of, gpu_uuid, join_group, main
from llmexp.launchers.rank.versions import rank_environment
from llmexp.machine.gpu_load import clock_and_temperature
from llmexp.machine.processor import last_cache_bytes
from llmexp.measure import memory
from llmexp.measure.calls import CallProtocol, Timed, time_calls
from llmexp.measure.clock import Clock, clock_for
from llmexp.micro.families.base import DEVICE, HOST, Family, MicroPoint
from llmexp.micro.plan.micro_plan import MicroPlan
from llmexp.micro.record import CallSample
from llmexp.record.samples import RankSummary
from llmexp.registry import get_family

Maker = Callable[[MicroPoint, CasePlace], Case]
ELSEWHERE = "another rank could not measure it"


def maker(family: Family[Any]) -> Maker:
    """Return the function that makes the calls of a family's points; raises ImportError where it is not there."""
    module, _, name = family.case.partition(":")
    found: Maker = getattr(import_module(module), name)
    return found


class MicroRank:
    """A rank that measures points in turn with its peers."""

    def __init__(self, plan: MicroPlan, rank: Rank) -> None:
        self.plan, self.rank = plan, rank
        self.device = device_of(plan.config.hardware, rank.local_index)
        if rank.world_size > 1:
            join_group(self.device)
        self.place = CasePlace(self.device, rank.index, rank.world_size, _cache_bytes(self.device) or 0, rank.folder)
        protocol = plan.config.measure
        self.protocol = CallProtocol(
            protocol.samples,
            protocol.warmup_calls,
            protocol.min_sample_s,
            protocol.point_limit_s,
            protocol.warmup_limit_s,
        )
        self.clock: Clock = clock_for(self.device)
        self.gpu = gpu_uuid(self.device)
        self.memory_bytes = memory.current_bytes(self.device)
        self.origin_s = time.perf_counter()

    def measure(self, index: int, point: MicroPoint) -> CallSample:
        """Measure one point; what keeps it from being measured on any rank is its problem on every rank."""
        begin_s = time.perf_counter()
        case, problem = self._ready(point)
        if self.slowest(float(bool(problem))):
            timed, problem = Timed((), 1), problem or ELSEWHERE
        else:
            assert case
            is_graphed = self.device.type == "cuda" and get_family(point.family).is_graphed(point.kind)
            record = graph_of if is_graphed else None
            timed = time_calls(case.calls, self.clock, self.protocol, self.slowest, record)
        found = CallSample(
            index=index,
            warmup=False,
            t_start_s=begin_s - self.origin_s,
            t_end_s=time.perf_counter() - self.origin_s,
            at_s=time.time(),
            memory_bytes=self.memory_bytes(),
            times_s=list(timed.times_s),
            calls=timed.calls,
            input_sets=len(case.calls) if case else 1,
            problem=problem,
            what_ran=(case.what_ran + IN_A_GRAPH * timed.recorded) if case else "",
            **(clock_and_temperature(self.gpu) if self.gpu else {}),
        )
        del case
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        return found

    def _ready(self, point: MicroPoint) -> tuple[Case | None, str]:
        """Make a point ready, check what it computes, and return it with what keeps it from being measured."""
        family = get_family(point.family)
        if self.rank.world_size < family.fewest_ranks:
            return None, f"needs {'two' if family.fewest_ranks == 2 else family.fewest_ranks} ranks or more"
        try:
            case = maker(family)(point, self._place_of(family))
            return case, case.wrong()
        except (RuntimeError, MemoryError, OSError) as error:
            return None, f"{type(error).__name__}: {error}".splitlines()[0]

    def _place_of(self, family: Family[Any]) -> CasePlace:
        folder = family.folder(self.plan.config.micro.section(family))
        return replace(self.place, folder=Path(folder).expanduser()) if folder else self.place

    def slowest(self, value: float) -> float:
        """Return the largest of all ranks' values; the ranks leave together."""
        if self.rank.world_size == 1:
            return value
        shared = torch.tensor(value, device=self.device, dtype=torch.float64)
        distributed.all_reduce(shared, distributed.ReduceOp.MAX)
        return float(shared)


def work(plan: MicroPlan, rank: Rank) -> RankSummary:
    """Measure all points, a line of samples for each."""
    torch.manual_seed(plan.config.seed + rank.index)
    micro = MicroRank(plan, rank)
    peaks = memory.Peaks(micro.device)
    begin_s = time.perf_counter()
    with rank.samples_path.open("a") as file:
        for index, point in enumerate(plan.points):
            file.write(micro.measure(index, point).model_dump_json() + "\n")
            file.flush()
    return RankSummary(
        rank=rank.index,
        window_wall_s=time.perf_counter() - begin_s,
        what_ran={"device": str(micro.device), "backend": _backend(rank)}
        | {"cache_bytes": {DEVICE: _cache_bytes(micro.device), HOST: last_cache_bytes()}},
        environment=rank_environment(micro.device, rank.folder) if rank.index == 0 else {},
        **peaks.summary(),
    )


def _cache_bytes(device: torch.device) -> int | None:
    """Return the size of the device's last cache; None where it is not known."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).L2_cache_size or None
    return last_cache_bytes()


def _backend(rank: Rank) -> str | None:
    return distributed.get_backend() if rank.world_size > 1 else None


if __name__ == "__main__":
    main(work, lambda: MicroPlan)
