"""Which kernels ran, as the profiler saw them: the evidence for what a method's atoms did."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

# Names in the profiler's table that say how attention was computed, most telling first.
_ATTENTION = (
    r"flash_fwd|FlashAttnFunc|flash_attn.*(forward|fwd)",
    r"aten::_scaled_dot_product_flash_attention\w*",
    r"aten::_scaled_dot_product_cudnn_attention",
    r"aten::_scaled_dot_product_efficient_attention",
    r"aten::_scaled_dot_product_attention_math",
    r"aten::_softmax$",
)

# Kernels that are templates have names of a thousand characters.
LONGEST_NAME = 120


def _activities() -> list[ProfilerActivity]:
    cuda = [ProfilerActivity.CUDA] if torch.cuda.is_available() else []
    return [ProfilerActivity.CPU, *cuda]


class KernelProbe:
    """Profiles what runs inside `watch()`; then `attention` names the kernel that computed attention and `names` all operators."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self._times_us: dict[str, float] = {}

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Profile the block."""
        with profile(activities=_activities(), acc_events=True) as profiler:
            yield
        events = profiler.key_averages()
        self.names = {event.key: event.count for event in events}
        on_device = {event.key: event.self_device_time_total for event in events if event.device_type.name == "CUDA" and not event.is_user_annotation}
        self._times_us = on_device or {event.key: event.self_cpu_time_total for event in events}

    @property
    def attention(self) -> str | None:
        """The most telling attention operator or kernel, None where none was seen."""
        for pattern in _ATTENTION:
            found = next((name for name in self.names if re.search(pattern, name)), None)
            if found:
                return found
        return None

    def costliest(self, number: int = 12) -> list[dict[str, str | int]]:
        """The kernels that took the device longest, on CPU the operators, longest first: name, as much of it as tells it apart, and calls."""
        longest = sorted(self._times_us, key=lambda name: -self._times_us[name])
        return [{"name": name[:LONGEST_NAME], "calls": self.names[name]} for name in longest[:number]]


@contextmanager
def trace_to(path: Path) -> Iterator[None]:
    """Write a compressed Chrome trace of the block, readable by Perfetto, to `path` (ending in .json.gz)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with profile(activities=_activities(), acc_events=True) as profiler:
        yield
    profiler.export_chrome_trace(str(path))
