"""Made-up breakdowns with the times of the paper's own tables, and runs that have them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from llmexp.paper.printed import read_table
from llmexp.record import ranges
from llmexp.record.breakdown import Breakdown, BreakdownShare, CollectiveTime, ModuleTime, RunBreakdown
from llmexp.record.folder import RunFolder

MS = 1_000_000
STEPS = 2
PURE = {"name": "bf16_pure"} | dict.fromkeys(("parameters", "gradients", "master", "moments"), "bf16")
# What the paper's runs have.
PAPERS = {"model__name": "7b", "model__num_layers": 32, "hardware__name": "a800", "precision": PURE, "batch__micro": 2}
PATHS = {
    **{name: (ranges.LAYER, ranges.ATTENTION, name) for name in ("QKV", "RoPE", "Bmm0", "Softmax", "Bmm1", "Output")},
    "MLP": (ranges.LAYER, ranges.MLP, ranges.GATE),
    "RMSNorm": (ranges.LAYER, ranges.NORM),
    "Linear": (ranges.LM_HEAD,),
    "Embedding": (ranges.EMBEDDING,),
}
Times = Mapping[tuple[str, str], float]


def module(phase: str, path: tuple[str, ...], ms: float, recomputed: bool = False) -> ModuleTime:
    took = round(ms * STEPS * MS)
    counted = {"exclusive_ns": took, "work_ns": took, "gemm_ns": 0, "pieces": 1}
    return ModuleTime(phase=phase, path=path, recomputed=recomputed, **counted)


def table06() -> dict[tuple[str, str], float]:
    return {(row["phase"], row["module"]): float(row["time_ms"]) for row in read_table("table06_module_time_bs2")}


def made_breakdown(times: Times, wholes_ms: Mapping[str, float], **more: Any) -> RunBreakdown:
    """Two steps of modules in phases; what no module takes is idle, but for `communication_ms` of backward."""
    modules = [module(phase, PATHS[name], ms) for (phase, name), ms in times.items() if name in PATHS]
    modules += more.pop("recomputed", [])
    hidden = times.get(("backward", "non-overlapping communication"), 0.0)
    phases = []
    for phase, whole_ms in wholes_ms.items():
        whole, talk = round(whole_ms * STEPS * MS), round(hidden * STEPS * MS) if phase == "backward" else 0
        compute = sum(each.exclusive_ns for each in modules if each.phase == phase)
        parts = {"compute_ns": compute, "communication_ns": talk, "idle_ns": whole - compute - talk}
        phases.append(BreakdownShare(phase=phase, time_ns=whole, copy_ns=0, gemm_ns=whole // 2, **parts))
    window = sum(each.time_ns for each in phases)
    compute, talk = sum(each.compute_ns for each in phases), sum(each.communication_ns for each in phases)
    idle = window - compute - talk
    rank = Breakdown(
        source="rank0.json.gz",
        steps=STEPS,
        window_ns=window,
        compute_ns=compute,
        exposed_communication_ns=talk,
        exposed_copy_ns=0,
        idle_ns=idle,
        idle_late_ns=idle,
        idle_queued_ns=0,
        idle_unexplained_ns=0,
        phases=phases,
        modules=modules,
        kernels=[],
        **({"on_device": True, "communication_ns": window // 2, "copy_ns": window // 10} | more),
    )
    called = {"calls": 2, "work_ns": window // 4, "pure_ns": None, "waited_ns": None}
    collectives = [CollectiveTime(name="ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", **called)]
    return RunBreakdown(repeat=0, ranks=[rank], collectives=collectives)


@pytest.fixture
def profiled(make_run: Callable[..., RunFolder]) -> Callable[..., RunFolder]:
    """A run with the times of the paper's tables V and VI, or with others; as the paper's, unless it is changed."""

    def make(method: str = "Naive", breakdown: RunBreakdown | None = None, **changes: Any) -> RunFolder:
        metrics = {"tokens_per_s": 1.0, "step_time_s": 0.5}
        folder = make_run(method, metrics=metrics, **PAPERS | {"sweep__name": "mine"} | changes)
        wholes = {"forward": 75.0, "backward": 250.0, "optimizer": 193.9}
        folder.write(folder.breakdown_path, breakdown or made_breakdown(table06(), wholes))
        return folder

    return make


@pytest.fixture
def made() -> Callable[..., RunBreakdown]:
    """A breakdown of two phases: QKV alone, 30 ms of 100 and 60 of 300, of which 64 more are recomputed."""

    def make(**more: Any) -> RunBreakdown:
        again = [module("backward", PATHS["QKV"], 64, recomputed=True)]
        times = {("forward", "QKV"): 30.0, ("backward", "QKV"): 60.0}
        return made_breakdown(times, {"forward": 100.0, "backward": 300.0}, recomputed=again, **more)

    return make
