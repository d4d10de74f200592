"""The kernels that the profiler saw are the evidence for what a method's atoms did."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.profiler import ProfilerActivity, profile

from llmexp.dtypes import SINGLE, by_trace
from llmexp.machine.own_threads import await_others_asleep

# Names in the profiler's table that show how attention was computed, the most specific first.
_ATTENTION = (
    r"flash_fwd|FlashAttnF|flash_attn.*(forward|fwd)",
    r"aten::_scaled_dot_product_flash_attention\w*",
    r"aten::_scaled_dot_product_cudnn_attention",
    r"aten::_scaled_dot_product_efficient_attention",
    r"aten::_scaled_dot_product_attention_math",
    r"aten::_softmax$",
    # torch.compile names a kernel after the operators in it; the loss has a log_softmax.
    r"(triton|cpp)_\w*fused\w*(?<!log)_softmax",
)
# Names of kernels that are templates can have a thousand characters.
LONGEST_NAME = 120
# The operators that compute a product themselves, each with the place of its first matrix among its arguments.
_PRODUCTS = {"aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1, "aten::baddbmm": 1, "aten::_scaled_mm": 0}
# Rotary frequencies and the like are products too, whatever the model computes in.
_WORTH_NAMING = 0.01


def _activities() -> list[ProfilerActivity]:
    cuda = [ProfilerActivity.CUDA] if torch.cuda.is_available() else []
    return [ProfilerActivity.CPU, *cuda]


@contextmanager
def _profile() -> Iterator[profile]:
    with profile(activities=_activities(), record_shapes=True) as profiler:
        yield profiler
        if distributed.is_initialized() and "gloo" in distributed.get_backend():
            # Gloo's threads complete a collective and then write its end into the profiler's records. Where these are
            # gone by then, the process is killed by what it overwrote.
            await_others_asleep()


class KernelProbe:
    """A profiler of what runs inside `watch()`.

    Afterwards `attention` names the kernel that computed attention, and `names` counts all operators and kernels.
    """

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.products_in: str | None = None
        self._times_ns: Counter[str] = Counter()

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Profile the block."""
        with _profile() as profiler:
            yield
        # torch's own table of these events, key_averages(), takes twenty times as long: seconds for a large model.
        recorder: Any = profiler.profiler
        events = recorder.kineto_results.events()
        operators = list(_operators(event for event in events if event.device_type().name == "CPU"))
        kernels = [
            (event.name(), event.duration_ns())
            for event in events
            if event.device_type().name == "CUDA" and not event.is_user_annotation()
        ]
        self.names = dict(Counter(name for name, _ in [*operators, *kernels]))
        self.products_in = products_in(events)
        for name, time_ns in kernels or operators:
            self._times_ns[name] += time_ns

    @property
    def attention(self) -> str | None:
        """The most specific attention operator or kernel; None where none was seen."""
        for pattern in _ATTENTION:
            found = next((name for name in self.names if re.search(pattern, name)), None)
            if found:
                return found
        return None

    def costliest(self, number: int = 12) -> list[dict[str, str | int]]:
        """Return the kernels (on CPU the operators) that took the longest time, longest first, with their calls.

        A name is cut after LONGEST_NAME characters.
        """
        longest = self._times_ns.most_common(number)
        return [{"name": name[:LONGEST_NAME], "calls": self.names[name]} for name, _ in longest]


@dataclass
class _Running:
    """An operator on one thread that may still be running when the next one begins."""

    name: str
    thread: int
    end_ns: int
    own_ns: int


def _operators(events: Iterable[Any]) -> Iterator[tuple[str, int]]:
    """Yield each operator with its own nanoseconds, without those of the operators that it called.

    An operator that calls another of the same name, an overload, counts once.
    """
    callers: list[_Running] = []
    for event in sorted(events, key=lambda event: (event.start_thread_id(), event.start_ns(), -event.duration_ns())):
        name, thread, duration_ns = event.name(), event.start_thread_id(), event.duration_ns()
        if thread != event.end_thread_id():
            yield name, 0  # nobody waited for it
            continue
        running = _Running(name, thread, event.start_ns() + duration_ns, duration_ns)
        while callers and (callers[-1].thread != thread or callers[-1].end_ns < running.end_ns):
            ended = callers.pop()
            yield ended.name, ended.own_ns
        if callers and callers[-1].name == name:
            continue
        if callers:
            callers[-1].own_ns -= duration_ns
        callers.append(running)
    yield from ((ended.name, ended.own_ns) for ended in callers)


@contextmanager
def trace_to(path: Path) -> Iterator[None]:
    """Write a compressed Chrome trace of the block, readable by Perfetto, to `path` (ending in .json.gz)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _profile() as profiler:
        yield
    profiler.export_chrome_trace(str(path))


def products_in(events: Iterable[Any]) -> str | None:
    """Name the dtypes with at least 1 % of all multiplications, most first; None where no product was seen.

    `events` are Kineto's, recorded with shapes. fp32 on a GPU that may round operands to TF32 is named tf32.
    """
    multiplications: Counter[str] = Counter()
    for event in events:
        if (place := _PRODUCTS.get(event.name())) is not None and event.device_type().name == "CPU":
            left, right = event.shapes()[place : place + 2]
            dtype = event.dtypes()[place]
            multiplications[by_trace().get(dtype, dtype)] += prod(left) * right[-1]
    least = _WORTH_NAMING * multiplications.total()
    found = [_as_computed(dtype) for dtype, count in multiplications.most_common() if count and count >= least]
    return " and ".join(found) or None


def _as_computed(dtype: str) -> str:
    rounds = torch.cuda.is_available() and torch.backends.cuda.matmul.allow_tf32
    return "tf32" if dtype == SINGLE and rounds else dtype
