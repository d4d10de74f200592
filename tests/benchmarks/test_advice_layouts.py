"""A published layout is found where advice has it, or something as fast; nothing is found that does not fit."""

from __future__ import annotations

import pytest

from benchmarks.advice import searched as module
from benchmarks.advice.layouts import LAYOUTS, layout_rows, layouts_part, words_of
from benchmarks.advice.page import sections_of, whole
from benchmarks.advice.recipes import RECIPES, recipe_rows, recipes_part
from benchmarks.advice.searched import Searched, same_mathematics, searched
from benchmarks.prediction.published_plans import planned
from benchmarks.prediction.published_rows import Row, published_rows
from llmexp.training.plan.training_plan import TrainingPlan
from tests.planning import make_plan

WORDS = ("model=llama3-8b", "hardware=h100", "engine=megatron", "data=synthetic", "data.seq_len=8192")
CUTS = {"tp8": "parallelism.tp=8", "tp4": "parallelism.tp=4", "tp2": "parallelism.tp=2", "pp2": "parallelism.pp=2"}
RATES = {"tp8": 90.0, "tp4": 95.0, "tp2": 98.0, "pp2": 100.0}


@pytest.fixture(scope="module")
def plans() -> dict[str, TrainingPlan]:
    return {name: make_plan(*WORDS, "method=F", word) for name, word in CUTS.items()}


@pytest.fixture(scope="module")
def row() -> Row:
    return layout_rows()[0]


@pytest.fixture
def rates(plans, monkeypatch) -> dict[str, float]:
    speeds = dict(RATES)
    monkeypatch.setattr(module, "rate_of", lambda plan: speeds[_name(plan, plans)])
    return speeds


@pytest.fixture
def fits(monkeypatch) -> list[str]:
    said = ["yes"]
    monkeypatch.setattr(Searched, "fits", property(lambda _: said[-1]))
    return said


def _name(plan: TrainingPlan, plans: dict[str, TrainingPlan]) -> str:
    return next(name for name, one in plans.items() if one is plan)


def test_a_layout_among_the_first_three_is_found(row, plans, rates, fits) -> None:
    ours = [plans[name] for name in ("pp2", "tp2", "tp4", "tp8")]
    third = Searched(row, plans["tp4"], ours)
    assert (third.place, third.is_found, third.of_first) == (3, True, 0.95)
    fourth = Searched(row, plans["tp8"], ours)
    assert (fourth.place, fourth.is_found) == (4, False)


def test_one_as_fast_as_the_third_is_found_too_if_it_fits(row, plans, rates, fits) -> None:
    ours = [plans[name] for name in ("pp2", "tp2", "tp4")]
    rates["tp8"] = 93.0
    assert Searched(row, plans["tp8"], ours).is_found
    rates["tp8"] = 92.0
    assert not Searched(row, plans["tp8"], ours).is_found
    rates["tp8"] = 93.0
    fits.append("no")
    assert not Searched(row, plans["tp8"], ours).is_found


def test_ours_beats_or_ties_within_three_percent(row, plans, rates, fits) -> None:
    assert Searched(row, plans["pp2"], [plans["tp2"]]).is_beaten
    assert not Searched(row, plans["pp2"], [plans["tp4"]]).is_beaten
    assert not Searched(row, None, [plans["tp4"]], "no plan").is_beaten


def test_of_a_layout_the_fastest_plan_counts(row, plans, rates, fits, monkeypatch) -> None:
    slower = plans["pp2"].model_copy()
    monkeypatch.setattr(module, "rate_of", lambda plan: 80.0 if plan is slower else RATES[_name(plan, plans)])
    assert Searched(row, None, [plans["pp2"], plans["tp2"], slower]).layouts == [plans["pp2"], plans["tp2"]]


def test_search_is_for_the_same_training(row) -> None:
    found = searched(row, ("kernels.liger=false",))
    assert found.ours
    assert {plan.batch.micro * plan.batch.accumulation * plan.dims.dp for plan in found.ours} == {128}
    assert {plan.config.engine.name for plan in found.ours} == {"megatron"}
    assert {plan.config.precision.name for plan in found.ours} == {found.plan.config.precision.name}
    assert all(same_mathematics(plan, found.plan) for plan in found.ours)


def test_a_published_layout_says_what_experts_are_cut_over_and_what_counts_as_a_layer() -> None:
    rows = layout_rows()
    words = {one.model: words_of(planned(one).plan) for one in rows if one.etp or one.ends_as_layers}
    assert words["mixtral-8x22b"].startswith("tp2 pp4 cp8 ep8 etp1 v14 F")
    assert words["qwen3-235b-a22b"].startswith("tp2 pp8 ep32 etp1 v4 +ends F")
    assert words["llama3.1-405b"].startswith("tp4 pp16 v8 +ends F")
    assert {one.layers for one in rows if one.ends_as_layers} == {126, 94}


def test_all_layouts_are_bf16_with_a_commit(row) -> None:
    rows = published_rows(LAYOUTS)
    assert len(rows) >= 10
    assert {one.precision for one in rows} == {"bf16_mixed"}
    assert all(len(one.url.split("/blob/")[1].split("/")[0]) == 40 for one in rows)
    assert len({one.source for one in rows}) >= 3


def test_recipes_have_sources_and_fine_tuning_is_on_one_card() -> None:
    assert all(one.url.startswith("https://") for one in published_rows(RECIPES))
    assert {one.devices for one in recipe_rows() if one.kind == "finetune"} == {1}


def test_tables_have_a_line_for_each(row, plans, rates, fits) -> None:
    judged = Searched(row, plans["tp8"], [plans["pp2"]])
    refused = Searched(row, None, [], "it cannot be")
    lines = "\n".join(layouts_part([judged, refused]))
    assert f"{words_of(plans['pp2'])} |" in lines
    assert "it cannot be" in lines
    assert "Found: 0 (0 %" in lines
    assert "it cannot be" in "\n".join(recipes_part([(row, judged), (row, refused)]))


def test_a_page_keeps_the_sections_that_are_not_written_anew() -> None:
    page = whole({"A": "| 1 |", "B": "two\n\nthree"})
    assert sections_of(page) == {"A": "| 1 |", "B": "two\n\nthree"}
