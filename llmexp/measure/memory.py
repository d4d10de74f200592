"""Memory of a rank: the allocator's peaks, the device's own count, the process, and training state by kind."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Iterable

import psutil
import torch

from llmexp.record.result import StateBytes


def current_bytes(device: torch.device) -> Callable[[], int]:
    """A cheap reading for every step: allocated on the device, or on CPU resident in the process."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated
    process = psutil.Process()
    return lambda: int(process.memory_info().rss)


def reset_peaks(device: torch.device) -> None:
    """Forget the peaks of building the model, so that they are those of training."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peaks(device: torch.device) -> dict[str, int]:
    """Peaks since `reset_peaks` and the process's peak resident set, by the names of RankSummary."""
    # ru_maxrss counts KiB on Linux, bytes on macOS.
    unit = 1 if sys.platform == "darwin" else 1024
    found = {"peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit}
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        found["peak_allocated_bytes"] = torch.cuda.max_memory_allocated(device)
        found["peak_reserved_bytes"] = torch.cuda.max_memory_reserved(device)
        found["peak_device_used_bytes"] = total - free
    return found


def bytes_of(tensors: Iterable[torch.Tensor], device: torch.device, *, offloaded: bool = False) -> StateBytes:
    """Bytes of storages, each counted once: those on the rank's device, and those moved to the host.

    On a CPU rank both are the same memory; there `offloaded` says which of the two it stands for.
    """
    on_device = on_host = 0
    seen: set[tuple[torch.device, int]] = set()
    for tensor in tensors:
        key = (tensor.device, tensor.untyped_storage().data_ptr())
        if tensor.numel() == 0 or key in seen:
            continue
        seen.add(key)
        size = tensor.untyped_storage().nbytes()
        if tensor.device.type == device.type and not (offloaded and device.type == "cpu"):
            on_device += size
        else:
            on_host += size
    return StateBytes(device=on_device, host=on_host)


def allocator_figures() -> dict[str, int]:
    """What the current GPU's allocator held when memory ran out; empty where this process has used none."""
    if not torch.cuda.is_initialized():
        return {}
    names = ("allocated_bytes.all.current", "allocated_bytes.all.peak", "reserved_bytes.all.current", "reserved_bytes.all.peak")
    figures = torch.cuda.memory_stats()
    return {name: int(figures.get(name, 0)) for name in names}
