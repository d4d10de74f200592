"""The picture of a ranking: memory across, speed up, and what cannot be had shaded."""

from __future__ import annotations

from functools import cache

import pytest

from llmexp.advice.goal import Goal
from llmexp.advice.option import Option
from llmexp.advice.picture import WITH_INTERVAL, pictures
from llmexp.advice.ranking import Ranking, ranked
from llmexp.record.digits import GIB
from llmexp.report.page.chart import Chart, ChartTrace
from llmexp.sweep.cost import Cost, Speed
from tests.planning import make_plan

A800 = ("model=13b", "hardware=a800", "method=F+Z3")


@cache
def option(*words: str) -> Option:
    return Option(Cost(make_plan(*words), None, "predicted"))


def batches(*sizes: int, words: tuple[str, ...] = A800) -> list[Option]:
    return [option(*words, f"batch.micro={size}") for size in sizes]


def picture(ranking: Ranking) -> tuple[Chart, dict[str, ChartTrace]]:
    (chart,) = pictures(ranking)
    return chart, {trace.name: trace for trace in chart.traces}


def test_options_stand_by_their_memory_and_speed_with_the_device_s_memory_as_a_line() -> None:
    sure, may = batches(8, 16)
    chart, traces = picture(ranked([sure, may], Goal("tokens_per_s")))
    assert [*traces] == ["the plain mathematics", "the plain mathematics, may not fit"]
    fits, doubtful = traces.values()
    assert sure.fit is not None
    assert (fits.x, fits.y, fits.intervals) == ([sure.fit.need / GIB], [sure.rate], [pytest.approx(sure.interval)])
    assert (fits.hollow, doubtful.hollow) == (False, True)
    assert fits.look == doubtful.look
    assert chart.limits == [("a800: 80.0 GiB", 80.0)]
    assert "Empty marks may not fit" in chart.caption


def test_what_changes_the_mathematics_looks_different() -> None:
    changed = option(*A800, "precision=bf16_pure", "batch.micro=8")
    _, traces = picture(ranked([*batches(8), changed], Goal("tokens_per_s")))
    assert [*traces] == ["the plain mathematics", "changes the mathematics"]
    assert len({trace.look for trace in traces.values()}) == 2


def test_machines_are_told_apart_and_lines_have_their_names() -> None:
    h100 = ("model=13b", "hardware=h100", "method=F+Z3")
    options = [*batches(8), *batches(8, words=h100), *batches(8, words=(*h100, "hardware.nodes=2"))]
    chart, traces = picture(ranked(options, Goal("tokens_per_s")))
    assert {*traces} == {f"{name}, the plain mathematics" for name in ("a800", "8 h100", "16 h100")}
    assert [name for name, _ in chart.limits] == ["h100: 79.6 GiB", "a800: 80.0 GiB"]


def test_only_near_misfits_are_drawn() -> None:
    sure, near, far = batches(8, 24, 64)
    assert near.fit is not None
    assert far.fit is not None
    assert (near.verdict, far.verdict) == ("no", "no")
    assert 1 < near.fit.need / near.fit.capacity < 1.25 < far.fit.need / far.fit.capacity
    _, traces = picture(ranked([sure, near, far], Goal("tokens_per_s")))
    assert traces["does not fit"].x == [near.fit.need / GIB]
    assert traces["does not fit"].hollow


def test_the_first_three_have_labels_with_what_tells_them_apart() -> None:
    options = [option(*A800[:2], f"method={method}") for method in ("F+Z3", "F+R+Z3", "F+R+Z3+O", "R+Z3+O")]
    _, traces = picture(ranked(options, Goal("tokens_per_s")))
    assert sorted(traces["the plain mathematics"].labels) == ["", "1 F+Z3", "2 F+R+Z3", "3 F+R+Z3+O"]


def test_a_measured_option_and_those_after_the_first_ten_have_no_interval() -> None:
    many = batches(*range(1, WITH_INTERVAL))
    plan = make_plan(*A800, "batch.micro=10")
    measured = Option(Cost(plan, None, "same", Speed(1e6, "this run before", is_own=True)))
    _, traces = picture(ranked([*many, measured, *batches(11)], Goal("tokens_per_s")))
    (trace,) = traces.values()
    assert len(trace.y) == WITH_INTERVAL + 1
    assert [interval is None for interval in trace.intervals] == [True, *[False] * (WITH_INTERVAL - 1), True]


def test_where_money_decides_tokens_for_a_dollar_are_drawn_too() -> None:
    one = option(*A800, "hardware.price_per_device_hour_usd=2")
    speed, money = pictures(ranked([one], Goal("tokens_per_usd")))
    assert (speed.y_label, money.y_label) == ("tokens/s of all devices", "tokens/USD")
    (trace,) = money.traces
    assert one.tokens_per_usd is not None
    assert trace.y == [one.tokens_per_usd]
    low, high = one.interval
    scale = one.tokens_per_usd / one.rate
    assert trace.intervals == [pytest.approx((low * scale, high * scale))]
