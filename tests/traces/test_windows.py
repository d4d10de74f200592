"""A rank that was profiled in two windows is one rank, and the time between them is nobody's."""

from __future__ import annotations

from pathlib import Path

from llmexp.record.counted import CountedPeaks
from llmexp.record.folder import RunFolder
from llmexp.record.ranges import DECODE, PREFILL
from llmexp.record.timeline import read_timeline
from llmexp.traces.breakdown import break_down, read_profile
from llmexp.traces.run import break_down_run, ranks_of, together, traces_of, write_breakdown

SHAPES = {"Input Dims": [[8, 16], [16, 4]], "Input type": ["float", "float"], "Concrete Inputs": ["", ""]}


def window(made, folder: Path, name: str, *steps: tuple[str, float]) -> Path:
    """Steps of 100 us, each with products for so long, begun long after what other windows have."""
    for number, (title, takes) in enumerate(steps):
        made.range(title, 100 * number, 100 * number + 90)
        made.operator("aten::mm", 100 * number, 100 * number + takes, **SHAPES)
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / name
    made.file("one.json.gz").rename(place)
    return place


PROMPT, TOKEN = "execute_context_1(8)_generation_0(0)", "execute_context_0(0)_generation_1(1)"


def test_two_windows_add_up(made, another, tmp_path: Path) -> None:
    first = window(made, tmp_path / "a", "rank0.0.json.gz", (PROMPT, 50))
    second = window(another(), tmp_path / "a", "rank0.1.json.gz", (TOKEN, 10), (TOKEN, 20))
    each = [break_down(read_profile(path)) for path in (first, second)]
    found = together(each)
    assert found.steps == 3
    assert found.window_ns == each[0].window_ns + each[1].window_ns == 90_000 + 190_000
    assert {phase.phase: (phase.steps, phase.gemm_ns) for phase in found.phases if phase.phase} == {
        PREFILL: (1, 50_000),
        DECODE: (2, 30_000),
    }
    (gemm,) = found.gemms
    assert (gemm.calls, gemm.work_ns, gemm.m, gemm.k, gemm.n) == (3, 80_000, 8, 16, 4)
    (kernel,) = found.kernels
    assert (kernel.calls, kernel.work_ns) == (3, 80_000)
    assert found.counted_flops == 3 * 2 * 8 * 16 * 4
    assert found.kinds == {"GEMM": 80_000}
    assert together(each[:1]) is each[0]


def test_a_runs_windows_are_ranks_of_one_each_and_its_timeline_is_of_the_last(made, another, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    traces = folder.path / "repeat.0" / "trace"
    window(made, traces, "rank0.0.json.gz", (PROMPT, 50))
    window(another(), traces, "rank0.1.json.gz", (TOKEN, 10))
    window(another(), traces, "rank1.0.json.gz", (PROMPT, 40))
    (traces / "rank0.profiler_out.txt").write_text("a table")
    assert [path.name for path in traces_of(traces.parent)] == ["rank0.0.json.gz", "rank0.1.json.gz", "rank1.0.json.gz"]
    assert {rank: path.name for rank, path in ranks_of(traces.parent).items()} == {
        0: "rank0.1.json.gz",
        1: "rank1.0.json.gz",
    }
    write_breakdown(folder, 2, CountedPeaks())
    found = break_down_run(folder, 2, CountedPeaks())
    assert found
    assert [rank.steps for rank in found.ranks] == [2, 1]
    assert found.figures["prefill_step_time_s"] == 90e-6
    assert found.figures["decode_step_time_s"] == 90e-6
    assert "step_time_s" not in found.figures
    drawn = read_timeline(folder)
    assert drawn
    assert (drawn.source, drawn.labels("phase")) == ("rank0.1.json.gz", [DECODE])


def test_a_window_that_cannot_be_read_is_told_and_the_other_counts(made, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    traces = folder.path / "repeat.0" / "trace"
    window(made, traces, "rank0.0.json.gz", (PROMPT, 50))
    (traces / "rank0.1.json.gz").write_bytes(b"\x1f\x8bbroken")
    found = break_down_run(folder, 1, CountedPeaks())
    assert found
    assert [rank.steps for rank in found.ranks] == [1]
    assert "rank0.1.json.gz is a damaged gzip file" in found.remark
