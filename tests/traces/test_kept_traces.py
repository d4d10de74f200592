"""A run keeps no more traces than it promises, and its breakdown has all ranks nevertheless."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmexp.record.breakdown import RunBreakdown, read_breakdown
from llmexp.record.counted import CountedPeaks
from llmexp.record.folder import RunFolder
from llmexp.traces import run
from llmexp.traces.run import traces_of, write_breakdown


def broken_down(made, folder: Path, sizes: list[int]) -> tuple[RunBreakdown, list[str]]:
    """Return the breakdown of a run whose ranks left traces of these sizes, and the traces that are left."""
    (folder / "repeat.0" / "trace").mkdir(parents=True)
    made.kernel("gemm", 0, 10)
    text = made.file().read_text()
    for rank, size in enumerate(sizes):
        (folder / "repeat.0" / "trace" / f"rank{rank}.json").write_text(text.ljust(size))
    write_breakdown(RunFolder(folder), len(sizes), CountedPeaks())
    found = read_breakdown(RunFolder(folder))
    assert found
    return found, [path.name for path in traces_of(folder / "repeat.0")]


@pytest.mark.parametrize(
    ("sizes", "kept"),
    [
        ([4000, 3000, 3000], 3),
        ([4000, 3000, 3001], 2),
        ([4000, 7000, 1000], 1),
        ([99_000, 1000], 1),  # the first rank's is kept whatever its size
    ],
)
def test_the_last_ranks_traces_go_once_they_are_read(made, tmp_path: Path, monkeypatch, sizes, kept: int) -> None:
    monkeypatch.setattr(run, "KEPT_BYTES", 10_000)
    found, left = broken_down(made, tmp_path / "run", sizes)
    assert left == [f"rank{rank}.json" for rank in range(kept)]
    assert [rank.source for rank in found.ranks] == [f"rank{rank}.json" for rank in range(len(sizes))]
    told = f"the traces of {len(sizes) - kept} of {len(sizes)} ranks were removed after they had been read"
    assert (told in found.remark) == (kept < len(sizes))


def test_what_a_run_promises_is_what_it_keeps(made, tmp_path: Path) -> None:
    found, left = broken_down(made, tmp_path / "run", [20_000_000, 20_000_000, 20_000_000])
    assert left == ["rank0.json", "rank1.json"]
    assert "a run keeps 50 MB of them" in found.remark
