"""The time of a step from made-up work and rates, counted by hand."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from llmexp.training.predict.rates import Rates
from llmexp.training.predict.schedule import step_time
from llmexp.training.predict.work import Work

NOTHING = Work(**{field.name: 0.0 for field in fields(Work)})
ONES = Rates(**{field.name: 1.0 for field in fields(Rates)})
# 100 positions of a pass; a product of 1000 FLOPs at half of 100 FLOP/s; no half length.
WORK = replace(NOTHING, passes=1.0, tokens=100.0, seq_len=50.0, products_flops=1000.0)
RATES = replace(ONES, peak_flops_per_s=100.0, products_share=0.5, half_rows=0.0, backward_products=2.0)


def test_products_take_their_flops_over_the_share_of_the_peak() -> None:
    step = step_time(WORK, RATES)
    assert (step.forward, step.backward) == (20.0, 40.0)
    assert step.whole == 60.0


def test_few_rows_make_products_slower() -> None:
    assert step_time(WORK, replace(RATES, half_rows=100.0)).forward == 40.0


def test_frozen_matrices_have_one_product_less_behind() -> None:
    frozen = step_time(replace(WORK, frozen=1.0), replace(RATES, frozen_products=1.0))
    assert (frozen.forward, frozen.backward) == (20.0, 20.0)


def test_launches_decide_where_kernels_are_short() -> None:
    launched = step_time(replace(WORK, layers=10.0), replace(RATES, launch_s=100.0))
    assert launched.forward == pytest.approx(1000.0, rel=1e-3)


def test_gradients_are_reduced_beside_the_computing() -> None:
    work = replace(WORK, replicated=1.0, reduced_bytes=60.0)
    added = step_time(work, replace(RATES, overlap_replicated=1.0)).exposed
    hidden = step_time(work, replace(RATES, overlap_replicated=50.0)).exposed
    assert added == pytest.approx(120.0)
    assert hidden == pytest.approx(60.0, rel=0.01)


def test_a_recomputed_forward_hides_more() -> None:
    work, rates = replace(WORK, replicated=1.0, reduced_bytes=60.0), replace(RATES, overlap_replicated=4.0)
    assert step_time(replace(work, recomputed=1.0), rates).exposed < 0.95 * step_time(work, rates).exposed


def test_z3_gathers_twice_a_pass_and_z2_once_a_step() -> None:
    rates = replace(RATES, overlap_zero2=1.0, overlap_zero3=1.0, zero3_layer_s=0.0)
    work = replace(WORK, passes=3.0, reduced_bytes=10.0, gathered_bytes=7.0)
    assert step_time(replace(work, zero2=1.0), rates).exposed == pytest.approx(10 + 7)
    assert step_time(replace(work, zero3=1.0), rates).exposed == pytest.approx(3 * (10 + 2 * 7))


def test_the_update_is_of_the_device_or_of_the_host() -> None:
    here = replace(WORK, update_bytes=30.0)
    rates = replace(RATES, memory_bytes_per_s=10.0, fused_update=1.0, unfused_update=3.0)
    assert step_time(here, rates).optimizer == pytest.approx(3.0)
    assert step_time(replace(here, unfused_update=1.0), rates).optimizer == pytest.approx(9.0)
    there = replace(WORK, host_parameters=5.0, zero3=1.0, fetched_parameters=2.0)
    assert step_time(there, replace(rates, host_zero3=4.0, fetch_s=0.5)).host == pytest.approx(21.0)
