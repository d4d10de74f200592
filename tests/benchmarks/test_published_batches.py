"""What a published run does not name: the fastest that fits, and whatever it cannot have run without."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.prediction.published import judged
from benchmarks.prediction.published_batches import planned_as_run
from benchmarks.prediction.published_fits import TO_FIT, least_fit
from benchmarks.prediction.published_plans import planned
from benchmarks.prediction.published_rows import Row
from llmexp.training.plan.fit import fit_of
from llmexp.training.predict.rates import constants


@pytest.fixture(scope="module")
def pipeline(made_up) -> Row:
    return replace(made_up, framework="megatron-lm", layers=24, pp=2, accumulation=8, schedule="interleaved")


def test_a_batch_without_a_micro_batch_has_the_fastest_that_fits(made_up) -> None:
    silent = replace(made_up, micro_batch=None, accumulation=None, global_batch=4 * 12)
    chosen, one = planned_as_run(silent), planned(silent)
    sizes = {micro: planned(replace(silent, micro_batch=micro)) for micro in (1, 2, 4)}
    assert [fit_of(sizes[micro].plan, micro).verdict for micro in (1, 2, 4)] == ["yes"] * 3
    fastest = min(sizes, key=lambda micro: sizes[micro].cell.evidence(constants()).predicted_s({}))
    assert (fastest, chosen.plan.batch.micro, chosen.plan.batch.accumulation) == (4, 4, 3)
    assert chosen.row == silent
    assert {*one.assumed} ^ {*chosen.assumed} == {"a micro batch of 1", "the fastest micro batch that fits"}


def test_a_micro_batch_that_is_too_large_is_not_assumed(made_up) -> None:
    silent = replace(made_up, micro_batch=None, accumulation=None, global_batch=4 * 64, recomputation="none")
    chosen = planned_as_run(silent).plan.batch.micro
    beyond = planned(replace(silent, micro_batch=2 * chosen)).plan
    assert chosen < 64
    assert fit_of(beyond, 2 * chosen).verdict != "yes"


def test_without_a_batch_the_micro_batch_is_one(made_up) -> None:
    assert planned_as_run(replace(made_up, micro_batch=None, accumulation=None)).plan.batch.micro == 1


def test_stages_that_interleave_are_as_many_as_is_fastest(pipeline) -> None:
    chosen = planned_as_run(pipeline)
    sizes = {each: planned(replace(pipeline, virtual_stages=each)) for each in (2, 3, 4, 6, 12)}
    fastest = min(sizes, key=lambda each: sizes[each].cell.evidence(constants()).predicted_s({}))
    assert chosen.plan.dims.virtual_stages == fastest > 1
    assert chosen.row == pipeline
    assert {*chosen.assumed} - {*sizes[fastest].assumed} == {"the fastest number of virtual stages that fits"}


def test_stages_that_a_source_counts_are_not_assumed(pipeline) -> None:
    assert planned_as_run(replace(pipeline, virtual_stages=3)).plan.dims.virtual_stages == 3


def test_a_pipeline_of_unknown_passes_has_no_plan(pipeline) -> None:
    silent = replace(pipeline, virtual_stages=2, accumulation=None)
    assert planned(silent).plan is None
    assert "passes" in planned(silent).refused
    assert planned(replace(silent, global_batch=64)).plan


def test_a_run_that_cannot_have_fitted_recomputed_if_its_source_is_silent(made_up) -> None:
    silent = replace(made_up, micro_batch=16, recomputation="", sharding=3)
    assert least_fit(planned(silent)).verdict == "no"
    chosen = planned_as_run(silent)
    assert chosen.plan.techniques.recomputation
    assert chosen.row == silent
    assert TO_FIT in chosen.assumed
    (one,) = judged([silent])
    assert one.fits == "no", "what is assumed to fit must not hide a wrong no"


def test_states_are_shared_out_before_anything_is_recomputed(made_up) -> None:
    silent = replace(made_up, hardware="a100_40gb", micro_batch=1, recomputation="", sharding=None)
    chosen = planned_as_run(silent)
    assert least_fit(planned(silent)).verdict == "no"
    assert (chosen.plan.techniques.zero_stage, chosen.plan.techniques.recomputation) == (3, False)


def test_what_a_source_says_stands_although_it_does_not_fit(made_up) -> None:
    told = replace(made_up, micro_batch=16, recomputation="none", sharding=3)
    chosen = planned_as_run(told)
    assert least_fit(chosen).verdict == "no"
    assert not chosen.plan.techniques.recomputation
    assert TO_FIT not in chosen.assumed


def test_what_fits_is_planned_as_its_source_tells_it(made_up) -> None:
    assert (
        planned_as_run(replace(made_up, recomputation="")).assumed
        == planned(replace(made_up, recomputation="")).assumed
    )
