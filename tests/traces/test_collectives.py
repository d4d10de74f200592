"""The ranks' collectives side by side, with clocks that disagree."""

from __future__ import annotations

from pathlib import Path

from llmexp.record.breakdown import read_breakdown
from llmexp.record.counted import CountedPeaks
from llmexp.record.folder import RunFolder
from llmexp.traces.run import break_down_ranks, write_breakdown

NCCL, SEND = "ncclDevKernel_AllReduce", "ncclDevKernel_SendRecv"


def ranks(another, *calls: list[tuple[str, float, float]]) -> list[Path]:
    paths = []
    for rank, of_rank in enumerate(calls):
        made = another()
        for name, begin, end in of_rank:
            made.kernel(name, begin, end, launched=begin - 1)
        paths.append(made.file(f"rank{rank}.json"))
    return paths


def test_a_late_rank_is_waited_for_and_the_collective_is_what_follows(another) -> None:
    # The second rank comes 6 and 2 later; its clock is 1000 ahead.
    first = [(NCCL, 10, 30), (NCCL, 50, 60), (NCCL, 70, 80)]
    second = [(NCCL, 1016, 1030), (NCCL, 1052, 1060), (NCCL, 1070, 1080)]
    (found,) = break_down_ranks(ranks(another, first, second)).collectives
    assert (found.calls, found.work_ns) == (3, (40_000 + 32_000) // 2)
    assert (found.pure_ns, found.waited_ns) == (14_000 + 8_000 + 10_000, 4_000)


def test_calls_that_do_not_match_are_not_divided(another) -> None:
    found = break_down_ranks(ranks(another, [(NCCL, 10, 30), (SEND, 40, 50)], [(SEND, 40, 60)])).collectives
    assert [(each.name, each.pure_ns, each.waited_ns) for each in found] == [(NCCL, None, None), (SEND, None, None)]


def test_a_damaged_rank_is_named_and_the_others_count(another, tmp_path: Path) -> None:
    repeat = tmp_path / "run" / "repeat.0"
    (repeat / "trace").mkdir(parents=True)
    for rank, path in enumerate(ranks(another, [(NCCL, 10, 30)], [(NCCL, 10, 30)])):
        path.rename(repeat / "trace" / f"rank{rank}.json")
    (repeat / "trace" / "rank1.json").write_text("{")
    folder = RunFolder(tmp_path / "run")
    write_breakdown(folder, processes=4, peaks=CountedPeaks(flops_per_s={"bf16": 1e12}))
    found = read_breakdown(folder)
    assert found
    assert [rank.source for rank in found.ranks] == ["rank0.json"]
    assert found.peaks.flops_per_s == {"bf16": 1e12}
    assert "rank1.json is not a trace" in found.remark
    assert "2 of 4 ranks were traced" in found.remark
