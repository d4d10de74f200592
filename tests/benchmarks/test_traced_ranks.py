"""The formula of memory beside traced ranks: each run is traced, and its figures have limits."""

from __future__ import annotations

import pytest

from benchmarks.prediction import traced
from benchmarks.prediction.traced import LIMITS, RUNS, Traced, traced_figures
from llmexp.cli.arguments import run_parser
from llmexp.cli.words import jobs_of

GIB = 1 << 30


@pytest.mark.parametrize("words", RUNS)
def test_each_run_is_one_that_llmexp_would_start(words: str) -> None:
    (job,) = jobs_of(run_parser().parse_intermixed_args([*words.split(), "hardware=a800", "data=synthetic"]))
    assert job.plan.skip is None


@pytest.mark.ranks
def test_a_traced_rank_holds_what_the_formula_says(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "engine=torch model=tiny method=F batch.micro=16 data.seq_len=2048 precision=bf16_pure parallelism.dp=1"
    monkeypatch.setattr(traced, "RUNS", (words,))
    (run,) = traced.traced()
    assert run.peak[0] > run.kept[0] > 0
    assert run.kept[1] == pytest.approx(run.kept[0], rel=0.01)
    assert run.error == pytest.approx(0, abs=0.05)


@pytest.mark.parametrize(("errors", "verdict"), [((0.01, -0.02, 0.04), "kept"), ((0.2, -0.3, 0.4), "BROKEN")])
def test_its_errors_are_judged_by_the_limits(
    errors: tuple[float, ...], verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [Traced("", (GIB, GIB), (GIB, round(GIB * (1 + error)))) for error in errors]
    monkeypatch.setattr(traced, "traced", lambda: iter(runs))
    middle, tail, within = traced_figures()
    assert (middle.limit, tail.limit) == LIMITS
    assert {middle.verdict, tail.verdict} == {verdict}
    assert within.measured.mean == pytest.approx(100 * (verdict == "kept"))
