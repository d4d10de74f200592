"""`python -m benchmarks traces` measures what `llmexp trace` costs, beside Python's own json.

The trace is made up: steps of a model of many layers on a GPU, with the ranges, links and shapes that a run's own trace
has, in the profiler's layout. Its times are those of a machine's clock, or of the epoch.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from benchmarks.figure import Figure
from benchmarks.interval import interval, paired_ratio
from benchmarks.process import Cost, cost_of
from benchmarks.rivals import rivals_of
from llmexp.record import ranges

PLAIN = "import json, sys; json.load(open(sys.argv[1]))"
TRACE = (sys.executable, "-m", "llmexp", "trace")
OURS, JSON = "llmexp trace", "json"
MILLION = 1_000_000
# json's own time depends more on the processor than ours does: half of it may be the collection of garbage. The reading
# alone has taken 0.15 of it on one machine and 0.26 on another.
SHARE_OF_JSON, PEAK_MB = 0.3, 100
# Longer times of the epoch may cost this many times as much as those of a machine's clock.
EPOCH_OVER_MACHINE = 1.1
# The microseconds at which the clocks began, and as a profiler writes them today.
CLOCKS = {"the machine's clock": 4_578_163_625_258, "the epoch's clock": 1_790_857_026_000_000}
DEVICE = '"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 84929347584'
LAYERS, KERNELS_A_PHASE = 32, 12
KERNEL = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, 3>(int, Params)"
GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel"
MODULES = (ranges.NORM, ranges.QKV, ranges.ROPE, ranges.CORE, ranges.OUTPUT, ranges.GATE, ranges.UP, ranges.DOWN)


def traces(folder: Path, rounds: int = 5, rivals: str | None = None) -> Iterator[Figure]:
    """Measure traces of a million events by each clock, in turn with json, and of ten million.

    `rivals` is an interpreter that has other readers of traces, which are then asked too, by the machine's clock.
    """
    machine, epoch = (folder / f"{clock}.json" for clock in CLOCKS)
    sizes = [write_trace(path, MILLION, CLOCKS[path.stem]) for path in (machine, epoch)]
    readers = {OURS: [*TRACE], JSON: [sys.executable, "-c", PLAIN]}
    costs = _in_turn({machine: readers | rivals_of(rivals), epoch: readers}, rounds)
    for clock, size, found in zip(CLOCKS, sizes, costs.values(), strict=True):
        yield from _figures(f"a million events by {clock} ({size / 1e6:,.0f} MB)", found)
    yield _of_clocks(costs[epoch][OURS], costs[machine][OURS])
    machine.unlink()
    yield _tenfold(folder, epoch, [cost.all_cpu_s for cost in costs[epoch][OURS]])


def _in_turn(commands: Mapping[Path, Mapping[str, Sequence[str]]], rounds: int) -> dict[Path, dict[str, list[Cost]]]:
    costs: dict[Path, dict[str, list[Cost]]] = {path: {reader: [] for reader in commands[path]} for path in commands}
    for _ in range(rounds):
        for path, readers in commands.items():
            for reader, command in readers.items():
                costs[path][reader].append(cost_of([*command, str(path)], path.parent))
    return costs


def _of_clocks(epoch: Sequence[Cost], machine: Sequence[Cost]) -> Figure:
    over = paired_ratio([cost.all_cpu_s for cost in epoch], [cost.all_cpu_s for cost in machine])
    return Figure(f"{OURS}, {' over '.join(reversed(CLOCKS))}", "x", over, len(epoch), limit=EPOCH_OVER_MACHINE)


def _figures(name: str, costs: Mapping[str, Sequence[Cost]]) -> Iterator[Figure]:
    """Yield the readers' CPU times over that of json, and their peaks; llmexp's have limits."""
    cpu_s = {reader: [cost.all_cpu_s for cost in found] for reader, found in costs.items()}
    for reader, found in costs.items():
        if reader != JSON:
            limit = SHARE_OF_JSON if reader == OURS else None
            over_json = paired_ratio(cpu_s[reader], cpu_s[JSON])
            yield Figure(f"{name}, {reader} over json", "x", over_json, len(found), limit=limit)
    for reader, found in costs.items():
        peak = interval([cost.peak_rss_bytes / 1e6 for cost in found])
        yield Figure(f"{name}, {reader}, peak", "MB", peak, len(found), limit=PEAK_MB if reader == OURS else None)


def _tenfold(folder: Path, path: Path, cpu_s: Sequence[float]) -> Figure:
    write_trace(path, 10 * MILLION, CLOCKS["the epoch's clock"])
    tenfold = [cost_of([*TRACE, str(path)], folder).all_cpu_s for _ in range(2)]
    tenfold_over = paired_ratio(tenfold, [10 * s for s in cpu_s[:2]])
    return Figure("ten million events, over ten times a million", "x", tenfold_over, 2, limit=1.1)


def write_trace(path: Path, events: int, begin_us: int = CLOCKS["the machine's clock"]) -> int:
    """Write a trace of at least so many events and return its bytes."""
    with path.open("w") as file:
        file.write('{\n  "schemaVersion": 1,\n  "deviceProperties": [\n    {\n      ' + DEVICE)
        file.write('\n    }\n  ],\n  "baseTimeNanoseconds": 1790857026000000000,\n  "traceEvents": [\n')
        _Writer(file, events, begin_us).write()
        file.write('\n  ],\n  "traceName": "made-up.json"\n}\n')
    return path.stat().st_size


class _Writer:
    """Writes steps of forward and backward; times are in microseconds after the begin."""

    def __init__(self, file: TextIO, events: int, begin_us: int) -> None:
        self._file, self._wanted, self._begin_us, self._written = file, events, begin_us, 0
        self._host_us, self._device_us, self._correlation = 0.659, 42.0, 0

    def write(self) -> None:
        """Write steps until there are enough events."""
        while self._written < self._wanted:
            begin_us = self._host_us
            forward = [self._module(name, layer) for layer in range(LAYERS) for name in MODULES]
            self._range(ranges.PHASE_END + "forward", self._host_us, 0.5)
            for link, at_us in enumerate(reversed(forward)):
                self._gradient(link + self._written, at_us)
            self._range(ranges.PHASE_END + "backward", self._host_us, 0.5)
            self._range(ranges.STEP, begin_us, self._host_us - begin_us)

    def _module(self, name: str, layer: int) -> float:
        begin_us = self._host_us
        for call in range(KERNELS_A_PHASE // 3):
            self._operator(call, thread=1)
        self._range(ranges.MODULE + name, begin_us - 1, self._host_us - begin_us)
        return begin_us

    def _gradient(self, link: int, forward_us: float) -> None:
        begin_us = self._host_us
        for call in range(2 * KERNELS_A_PHASE // 3):
            self._operator(call, thread=2)
        operator = {"Sequence number": link, "Fwd thread id": 1, "Ev Idx": link}
        took_us = round(self._host_us - begin_us, 3)
        self._event(
            "X", "cpu_op", "autograd::engine::evaluate_function: MmBackward0", 2, begin_us, dur=took_us, args=operator
        )
        for phase, thread, at_us in (("s", 1, forward_us), ("f", 2, begin_us)):
            self._event(phase, "fwdbwd", "fwdbwd", thread, at_us, id=link)

    def _operator(self, call: int, thread: int) -> float:
        begin_us = self._host_us
        self._correlation += 1
        multiplies = call % 4 == 0
        shapes = {"External id": self._correlation, "Record function id": 0, "Concrete Inputs": ["", ""]} | {
            "Input type": ["c10::BFloat16", "c10::BFloat16"],
            "Input Strides": [[4096, 1], [1, 4096]],
            "Input Dims": [[4096, 4096], [4096, 11008 if multiplies else 4096]],
            "Ev Idx": self._correlation,
        }
        self._event("X", "cpu_op", "aten::mm" if multiplies else "aten::add", thread, begin_us, dur=9.25, args=shapes)
        launched = {"External id": self._correlation, "cbid": 211, "correlation": self._correlation}
        self._event("X", "cuda_runtime", "cudaLaunchKernel", thread, begin_us + 3.125, dur=4.5, args=launched)
        grid = {"registers per thread": 168, "shared memory": 197632, "blocks per SM": 5.0, "warps per SM": 60.0} | {
            "grid": [688, 1, 1],
            "block": [128, 1, 1],
            "est. achieved occupancy %": 38,
            "device": 0,
            "stream": 7,
        }
        kernel = {"External id": self._correlation, "queued": 0, "correlation": self._correlation, "context": 1} | grid
        self._device_us = max(self._device_us + 0.5, begin_us + 12)
        self._event("X", "kernel", GEMM if multiplies else KERNEL, 7, self._device_us, dur=8.123, args=kernel)
        self._device_us += 8.123
        for phase, lane, at_us in (("s", thread, begin_us + 3.125), ("f", 7, self._device_us)):
            self._event(phase, "ac2g", "ac2g", lane, at_us, id=self._correlation)
        self._host_us += 10
        return begin_us

    def _range(self, name: str, at_us: float, took_us: float) -> None:
        self._event("X", "user_annotation", name, 1, at_us, dur=round(took_us, 3), args={"Ev Idx": self._written})

    def _event(self, phase: str, category: str, name: str, lane: int, at_us: float, **more: Any) -> None:
        args = more.pop("args", None)
        event = {"ph": phase, "cat": category, "name": name, "pid": 1, "tid": lane, "ts": 0} | more
        text = json.dumps(event).replace(', "pid"', ',\n    "pid"').replace("{", "{\n    ", 1)[:-1]
        whole_us, ns = divmod(round(at_us * 1000), 1000)
        text = text.replace('"ts": 0', f'"ts": {self._begin_us + whole_us}.{ns:03}')
        if args:
            text += ',\n    "args": {\n      ' + json.dumps(args)[1:-1].replace(', "', ',\n      "') + "\n    }"
        self._file.write(",\n  " * bool(self._written) + text + "\n  }")
        self._written += 1
