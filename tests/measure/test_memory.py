from __future__ import annotations

import mmap
from collections.abc import Callable

import pytest
import torch

from llmexp.measure.memory import Peaks, bytes_of, current_bytes

CPU = torch.device("cpu")
BLOCK_BYTES = 64 * 1024**2


def test_each_storage_counts_once_whatever_views_there_are() -> None:
    whole = torch.zeros(100)
    size = bytes_of([whole, whole[:50], whole.view(10, 10), torch.zeros(3, dtype=torch.bfloat16), torch.empty(0)], CPU)
    assert (size.device, size.host) == (406, 0)


def test_offloaded_state_of_a_cpu_rank_counts_as_the_hosts() -> None:
    size = bytes_of([torch.zeros(10)], CPU, offloaded=True)
    assert (size.device, size.host) == (0, 40)


def test_the_resident_set_grows_with_what_is_touched() -> None:
    read = current_bytes(CPU)
    before = read()
    with mmap.mmap(-1, BLOCK_BYTES) as block:  # an allocator may give what the process holds already
        for page in range(0, BLOCK_BYTES, mmap.PAGESIZE):
            block[page] = 1
        assert read() - before > 0.9 * BLOCK_BYTES
    assert Peaks(CPU).summary()["peak_rss_bytes"] >= before


def test_the_phase_of_the_peak_is_the_one_in_which_the_process_grew_last() -> None:
    peaks = Peaks(CPU)
    peaks.end_phase("forward")
    assert peaks.phase is None
    # More than whatever this process has ever held.
    block = torch.ones(Peaks(CPU).summary()["peak_rss_bytes"] // 4 + 2**24)
    peaks.end_phase("backward")
    del block
    peaks.end_phase("optimizer")
    assert (peaks.phase, set(peaks.of_phases)) == ("backward", {"backward"})


class Allocator:
    """What torch.cuda says of an allocator and its device, replayed.

    The device holds 100 bytes more, for its context.
    """

    def __init__(self) -> None:
        self.held = self.peak = self.reserved = 0

    def allocate(self, size: int) -> None:
        self.held += size
        self.peak, self.reserved = max(self.peak, self.held), max(self.reserved, self.held)

    def answers(self) -> dict[str, Callable[..., object]]:
        return {
            "max_memory_allocated": lambda _: self.peak,
            "max_memory_reserved": lambda _: self.reserved,
            "mem_get_info": lambda _: (1000 - self.reserved - 100, 1000),
            "reset_peak_memory_stats": lambda _: setattr(self, "peak", self.held),
        }


def test_a_phase_does_not_inherit_the_peak_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights of 20 bytes and activations of 30.

    The first step makes gradients of 20 and states of 120, and its update takes 60 more.
    """
    allocator = Allocator()
    for name, answer in allocator.answers().items():
        monkeypatch.setattr(torch.cuda, name, answer)

    def step(end_phase: Callable[[str], None], states: int) -> None:
        for phase, taken, left in (("forward", 30, 30), ("backward", 20, -10), ("optimizer", 60 + states, states - 20)):
            allocator.allocate(taken)
            allocator.allocate(left - taken)
            end_phase(phase)

    peaks = Peaks(torch.device("cuda", 0))
    allocator.allocate(20)
    step(lambda phase: None, states=120)
    peaks.begin_phases()
    step(peaks.end_phase, states=0)
    # 20 + 120 stay; forward adds 30, backward 20 more, and then the update 60 to the gradients' 20.
    assert peaks.of_phases == {"forward": 170, "backward": 190, "optimizer": 220}
    assert peaks.phase == "optimizer"
    summary = peaks.summary()
    assert (summary["peak_allocated_bytes"], summary["peak_reserved_bytes"], summary["peak_device_used_bytes"]) == (
        220,
        220,
        320,
    )


@pytest.mark.gpu
def test_on_a_gpu_each_phase_has_the_allocators_own_peak() -> None:
    device = torch.device("cuda", 0)
    peaks = Peaks(device)
    for phase, size in (("forward", 2**20), ("backward", 2**24), ("optimizer", 2**22)):
        block = torch.ones(size, dtype=torch.uint8, device=device)
        del block
        peaks.end_phase(phase)
    held = torch.cuda.memory_allocated(device)
    assert peaks.phase == "backward"
    assert {phase: size - held for phase, size in peaks.of_phases.items()} == {
        "forward": 2**20,
        "backward": 2**24,
        "optimizer": 2**22,
    }
    assert peaks.summary()["peak_allocated_bytes"] == held + 2**24
