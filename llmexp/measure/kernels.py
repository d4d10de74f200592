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


def _activities() -> list[ProfilerActivity]:
    cuda = [ProfilerActivity.CUDA] if torch.cuda.is_available() else []
    return [ProfilerActivity.CPU, *cuda]


class KernelProbe:
    """Profiles what runs inside `watch()`; then `attention` names the kernel that computed attention and `names` all operators."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Profile the block."""
        with profile(activities=_activities(), acc_events=True) as profiler:
            yield
        self.names = {event.key: event.count for event in profiler.key_averages()}

    @property
    def attention(self) -> str | None:
        """The most telling attention operator or kernel, None where none was seen."""
        for pattern in _ATTENTION:
            found = next((name for name in self.names if re.search(pattern, name)), None)
            if found:
                return found
        return None


@contextmanager
def trace_to(path: Path) -> Iterator[None]:
    """Write a compressed Chrome trace of the block, readable by Perfetto, to `path` (ending in .json.gz)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with profile(activities=_activities(), acc_events=True) as profiler:
        yield
    profiler.export_chrome_trace(str(path))
