"""The memory of a rank: the allocator's peaks, the device's own count, the process, and training state by kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import psutil
import torch

from llmexp.machine.processes import peak_rss_bytes
from llmexp.record.samples import StateBytes


def current_bytes(device: torch.device) -> Callable[[], int]:
    """Return a cheap reading for every step: bytes allocated on the device, or resident in the process on CPU."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated
    process = psutil.Process()
    return lambda: int(process.memory_info().rss)


class Peaks:
    """The peaks of training, without those of building the model, and the peaks of watched phases.

    They are read from the allocator, on CPU from the process.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._on_gpu = device, device.type == "cuda"
        self.of_phases: dict[str, int] = {}
        self._allocated = self._reserved = self._used = 0
        self._rss = peak_rss_bytes()
        if self._on_gpu:
            torch.cuda.reset_peak_memory_stats(device)

    def begin_phases(self) -> None:
        """Leave earlier peaks out of those of phases: the first update ends with more than the next forward needs."""
        if self._on_gpu:
            self._take()

    def end_phase(self, phase: str) -> None:
        """Note the peak of the phase that ends here; on CPU only where the process grew beyond its earlier peak."""
        if self._on_gpu:
            self._note(phase, self._take())
        elif (rss := peak_rss_bytes()) > self._rss:
            self._rss = rss
            self._note(phase, rss)

    @property
    def phase(self) -> str | None:
        """The phase with the highest peak; None where no phase's peak was above that of building the model."""
        return max(self.of_phases, key=lambda phase: self.of_phases[phase], default=None)

    def summary(self) -> dict[str, int]:
        """Return all peaks until now and the process's peak resident set, by the names of RankSummary."""
        found = {"peak_rss_bytes": peak_rss_bytes()}
        if self._on_gpu:
            self._take()
            found |= {
                "peak_allocated_bytes": self._allocated,
                "peak_reserved_bytes": self._reserved,
                "peak_device_used_bytes": self._used,
            }
        return found

    def _take(self) -> int:
        """Return the allocator's peak since the last call; the device's own count has no peak, so it is read now."""
        peak = torch.cuda.max_memory_allocated(self._device)
        free, total = torch.cuda.mem_get_info(self._device)
        self._allocated, self._used = max(self._allocated, peak), max(self._used, total - free)
        self._reserved = max(self._reserved, torch.cuda.max_memory_reserved(self._device))
        torch.cuda.reset_peak_memory_stats(self._device)
        return peak

    def _note(self, phase: str, size: int) -> None:
        self.of_phases[phase] = max(self.of_phases.get(phase, 0), size)


def bytes_of(tensors: Iterable[torch.Tensor], device: torch.device, *, offloaded: bool = False) -> StateBytes:
    """Count the bytes of storages, each storage once: those on the rank's device, and those moved to the host.

    On a CPU rank both are the same memory, and `offloaded` says which of the two it stands for.
    """
    return bytes_of_storages(
        (tensor.untyped_storage() for tensor in tensors if tensor.numel()), device, offloaded=offloaded
    )


def bytes_of_storages(
    storages: Iterable[torch.UntypedStorage], device: torch.device, *, offloaded: bool = False
) -> StateBytes:
    """Count the bytes of storages as `bytes_of` does."""
    on_device = on_host = 0
    for storage in {(storage.device, storage.data_ptr()): storage for storage in storages}.values():
        if storage.device.type == device.type and not (offloaded and device.type == "cpu"):
            on_device += storage.nbytes()
        else:
            on_host += storage.nbytes()
    return StateBytes(device=on_device, host=on_host)


def allocator_figures() -> dict[str, int]:
    """Return what the current GPU's allocator held when memory ran out; empty where this process has used no GPU."""
    if not torch.cuda.is_initialized():
        return {}
    names = (
        "allocated_bytes.all.current",
        "allocated_bytes.all.peak",
        "reserved_bytes.all.current",
        "reserved_bytes.all.peak",
    )
    figures = torch.cuda.memory_stats()
    return {name: int(figures.get(name, 0)) for name in names}
