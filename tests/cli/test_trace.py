"""llmexp trace on real traces of torch.profiler, and on what is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A trace as anybody's program leaves it."""
    path = tmp_path / "foreign.json.gz"
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(3):
            torch.ones(64, 64) @ torch.ones(64, 64)
    profiler.export_chrome_trace(str(path))
    return path


def made(path: Path, *operators: tuple[str, float, float]) -> Path:
    events = [
        {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": begin, "dur": end - begin}
        for name, begin, end in operators
    ]
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def test_a_foreign_trace_is_shown_by_kind_and_operator(llmexp, foreign: Path) -> None:
    code, out, _ = llmexp("trace", str(foreign))
    assert code == 0
    assert "aten::mm" in out
    assert "GEMM" in out
    assert "idle: between operators" in out
    assert "forward" not in out


def multiplied(path: Path, device: str) -> Path:
    """Write a trace of a product of 2 GFLOP in a millisecond, by a profiler that names its GPU."""
    shapes = {"Input Dims": [[1000, 1000], [1000, 1000]], "Input type": ["c10::BFloat16", "c10::BFloat16"]}
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 0, "dur": 1000, "args": shapes}
    path.write_text(json.dumps({"deviceProperties": [{"id": 0, "name": device}], "traceEvents": [event]}))
    return path


def test_the_rates_of_a_foreign_trace_stand_beside_the_peaks_of_its_gpu(llmexp, tmp_path: Path) -> None:
    known = multiplied(tmp_path / "known.json", "NVIDIA H100 80GB HBM3")
    unknown = multiplied(tmp_path / "unknown.json", "a GPU of tomorrow")
    row = ["mm", "bf16", "1", "1,000", "1,000", "1,000", "1", "1.00", "2.00"]
    for words, expected in (
        ((known,), [*row, "0.2", "6.00", "0.2"]),
        ((unknown,), [*row, "6.00"]),
        (("--hardware=a800", unknown), [*row, "0.6", "6.00", "0.3"]),
    ):
        code, out, error = llmexp("trace", *map(str, words))
        assert (code, error) == (0, "")
        assert expected in [line.split() for line in out.splitlines()]
    code, _, error = llmexp("trace", "--hardware=h1000", str(known))
    assert (code, "choices are a10, a100, a100_40gb, a100_pcie, a40, a4000" in error) == (2, True)


def test_the_difference_names_what_made_it_with_its_share(llmexp, tmp_path: Path) -> None:
    a = made(tmp_path / "a.json", ("aten::mm", 0, 1000), ("aten::add", 2000, 3000))
    b = made(tmp_path / "b.json", ("aten::mm", 0, 4000), ("aten::add", 5000, 7000))
    code, out, error = llmexp("trace", "diff", str(a), str(b))
    assert (code, error) == (0, "")
    lines = [line.split() for line in out.splitlines()]
    assert ["GEMM", "aten::mm", "1.00", "4.00", "+3.00", "75"] in lines
    assert ["elementwise", "aten::add", "1.00", "2.00", "+1.00", "25"] in lines
    assert "b's step takes +4.00 ms" in out


def test_a_trace_that_was_cut_off_says_so(llmexp, tmp_path: Path) -> None:
    whole = made(tmp_path / "a.json", *(("aten::mm", 10 * at, 10 * at + 5) for at in range(50)))
    whole.write_text(whole.read_text()[:2000])
    code, out, _ = llmexp("trace", str(whole))
    assert code == 0
    assert "a.json: the file is cut off within its events" in out


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (["nowhere"], 2, "there is no nowhere"),
        (["diff", "a"], 2, "takes two runs or traces, not 1"),
        ([], 2, "PATH"),
        (["text.json"], 1, "text.json is not a trace"),
        (["empty"], 2, "no runs in empty"),
        (["nowhere", "--timeline", "a.png"], 2, "there is no nowhere"),
        (["empty", "text.json", "--timeline", "a.png"], 2, "--timeline draws one run or trace, not 2"),
        (["text.json", "--timeline", "a.png"], 1, "text.json is not a trace"),
    ],
)
def test_what_is_no_trace_is_one_line(
    llmexp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.json").write_text("hello")
    (tmp_path / "empty").mkdir()
    ended, out, error = llmexp("trace", *words)
    assert (ended, out) == (code, "")
    assert why in error
    assert len(error.splitlines()) == 1


def test_a_run_without_a_trace_says_how_to_get_one(llmexp, make_run) -> None:
    folder = make_run()
    code, _, error = llmexp("trace", str(folder.path))
    assert (code, "measure.profile=true" in error) == (1, True)


def test_a_step_is_drawn_on_demand_and_nothing_else_is_written(llmexp, foreign: Path, tmp_path: Path) -> None:
    picture = tmp_path / "step.png"
    code, out, _ = llmexp("trace", str(foreign), "--timeline", str(picture))
    assert (code, out.strip()) == (0, str(picture))
    assert picture.stat().st_size > 5000
    assert {path.name for path in tmp_path.iterdir()} == {"step.png", foreign.name}
    code, _, error = llmexp("trace", str(foreign), "--timeline", str(tmp_path / "step.txt"))
    assert (code, "choices are png, svg, pdf" in error) == (1, True)


def test_of_a_run_the_rank_that_is_asked_for_is_drawn(llmexp, make_run, tmp_path: Path) -> None:
    folder = make_run()
    picture = ("--timeline", str(tmp_path / "step.png"))
    code, _, error = llmexp("trace", str(folder.path), *picture)
    assert (code, "measure.profile=true" in error) == (1, True)
    (folder.repeat(0) / "trace").mkdir(parents=True)
    made(folder.repeat(0) / "trace" / "rank1.json", ("aten::mm", 0, 1000))
    code, _, error = llmexp("trace", str(folder.path), *picture)
    assert (code, "--rank=0 was not traced: choices are 1" in error) == (2, True)
    assert llmexp("trace", str(folder.path), "--rank", "1", *picture)[0] == 0
    assert (tmp_path / "step.png").exists()
