"""The bytes of collectives, as torch notes them for NCCL and as Gloo's ranges tell them."""

from __future__ import annotations

from typing import Any

from llmexp.traces.breakdown import read_profile
from llmexp.traces.messages import moved_bytes
from llmexp.traces.run import break_down_ranks


def noted(made, at: float, collective: Any, sent: Any, received: Any, dtype: str = "BFloat16") -> None:
    args = {"Collective name": collective, "In msg nelems": sent, "Out msg nelems": received, "dtype": dtype}
    made.operator("record_param_comms", at, at + 1, **args)


def found(made, ranks: int = 4) -> dict[str, int]:
    profile = read_profile(made.file())
    return moved_bytes(profile.trace, profile.attribution.steps, ranks)


def test_the_larger_of_what_goes_in_and_comes_out_counts_by_kind(made) -> None:
    made.kernel("ncclDevKernel_AllReduce", 10, 20, launched=9)
    noted(made, 1, "allreduce", 1000, 1000)
    noted(made, 3, "_allgather_base", 1000, 4000)
    noted(made, 5, "_reduce_scatter_base", 4000, 1000, dtype="Float")
    noted(made, 7, "_allgather_base", 10, 40)
    assert found(made) == {"all_reduce": 2000, "all_gather": 2 * 4040, "reduce_scatter": 16000}


def test_what_is_no_collective_or_has_no_size_counts_nothing(made) -> None:
    made.kernel("ncclDevKernel_AllReduce", 10, 20, launched=9)
    noted(made, 1, "barrier", 0, 0)
    noted(made, 3, "allreduce", "many", None)
    noted(made, 5, "allreduce", 10, 10, dtype="Strange")
    noted(made, 7, None, 10, 10)
    assert found(made) == {}


def test_gloo_tells_what_a_rank_puts_in(made) -> None:
    made.operator("aten::add", 0, 30)
    args = {"Input Dims": [[3, 5]], "Input type": ["float"]}
    made.range("gloo:all_reduce", 10, 20, thread=2, **args)
    made.range("gloo:all_gather", 20, 30, thread=2, **args)
    made.range("gloo:barrier", 20, 30, thread=2)
    assert found(made, ranks=4) == {"all_reduce": 60, "all_gather": 240}


def test_a_run_has_the_mean_of_its_ranks(another) -> None:
    files = []
    for rank, numbers in enumerate((100, 300)):
        made = another()
        made.kernel("ncclDevKernel_AllReduce", 10, 20, launched=9)
        noted(made, 1, "allreduce", numbers, numbers)
        files.append(made.file(f"rank{rank}.json"))
    assert break_down_ranks(files).moved_bytes == {"all_reduce": 400}
