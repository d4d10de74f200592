from __future__ import annotations

import torch

from llmexp.measure.memory import bytes_of, current_bytes, peaks

CPU = torch.device("cpu")


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
    block = torch.ones(16 * 1024**2)
    assert read() - before > 0.9 * block.nbytes
    assert peaks(CPU)["peak_rss_bytes"] >= before
