"""What a run measured in place of a figure of the paper's tables."""

from __future__ import annotations

import pytest

from llmexp.paper.printed.breakdowns import PaperFigure
from llmexp.paper.training.step_times.measured import MeasuredTimes, Ours, attention_ms, measured


def asked(*labels: str, percent: float | None = 1.0) -> PaperFigure:
    return PaperFigure(labels, ("Naive",), 2, None, percent)


@pytest.fixture
def run(made) -> MeasuredTimes:
    """Forward of 100 ms, 30 of them in attention; backward of 300 ms, 60 in attention and 64 recomputed there."""
    return MeasuredTimes(made(), layers=4)


def test_phases_are_shares_of_the_step_and_computation_of_the_phase(run: MeasuredTimes) -> None:
    assert measured("V", asked("forward", "whole, % of step"), run) == Ours(100, 25)
    assert measured("V", asked("forward", "computing, % of phase"), run) == Ours(30, 30)
    assert measured("VII", asked("rest", "whole, % of step"), run) == Ours()


def test_attention_is_one_layers_without_what_is_recomputed(run: MeasuredTimes) -> None:
    assert (attention_ms(run, "forward"), attention_ms(run, "backward")) == (7.5, 15)
    faster = MeasuredTimes(run.breakdown, layers=8)
    assert measured("VIII", asked("forward", "F"), faster, run) == Ours(3.75, 50)
    assert measured("VIII", asked("forward", "Naive", percent=None), run, run) == Ours(7.5)


def test_without_a_number_of_layers_attention_has_no_figure(run: MeasuredTimes) -> None:
    assert measured("VIII", asked("forward", "F"), MeasuredTimes(run.breakdown, None), run) == Ours()


def test_a_phase_or_module_that_a_run_has_not_has_no_figure(run: MeasuredTimes) -> None:
    assert measured("V", asked("optimizer", "whole, % of step"), run) == Ours()
    assert measured("VI", asked("forward", "Softmax"), run) == Ours()
    assert measured("XIII", asked("Naive", "optimizer"), run) == Ours()


def test_the_rest_of_a_phase_is_all_that_the_paper_does_not_name(run: MeasuredTimes) -> None:
    assert measured("VI", asked("forward", "rest"), run) == Ours(70, 70)


def test_transfers_count_whether_computation_hides_them_or_not(run: MeasuredTimes) -> None:
    assert measured("XIV", asked("ZeRO-2", "7B"), run) == Ours(40, 10)
    assert measured("XVI", asked("ZeRO-2", "7B"), run) == Ours(200, 50)
    assert measured("XV", asked("Naive"), run) == Ours(100, 25)
