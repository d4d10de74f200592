from __future__ import annotations

from llmexp.launchers.torch_native.partitioned import evenly


def test_each_parameter_has_one_rank_and_ranks_hold_alike() -> None:
    assert evenly([4, 4, 4, 4], 2) == [0, 1, 0, 1]
    assert evenly([1, 7, 2, 4], 2) == [1, 0, 1, 1]
    assert evenly([5], 3) == [0]
