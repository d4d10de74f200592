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
WORK = replace(NOTHING, passes=1.0, tokens=100.0, narrow=1.0, expert_rows=1.0, seq_len=50.0, products_flops=1000.0)
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
    launched = step_time(replace(WORK, launched_layers=10.0), replace(RATES, launch_s=100.0))
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


def test_results_that_are_kept_are_not_computed_again() -> None:
    work = replace(WORK, recomputed=1.0, attention_flops=500.0)
    rates = replace(RATES, attention_share=0.5, attention_half_length=0.0)
    again = step_time(work, rates)
    assert again.again == again.forward == 20.0 + 10.0
    assert step_time(replace(work, kept_attention=1.0), rates).again == 20.0
    kept = step_time(replace(work, kept_attention=1.0, kept_products=1.0), rates)
    assert (kept.again, kept.forward) == (0.0, again.forward)


def test_z3_gathers_twice_a_pass_and_z2_once_a_step() -> None:
    rates = replace(RATES, overlap_zero2=1.0, overlap_zero3=1.0)
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
    adapter = step_time(replace(there, adapter=1.0), replace(rates, host_zero3=4.0, fetch_s=0.5, host_adapter=0.6))
    assert adapter.host == pytest.approx(0.6 * 20 + 1)


def test_states_shared_out_beside_computing_are_hidden_as_gradients_are() -> None:
    work = replace(WORK, zero2_beside=1.0, reduced_bytes=10.0, gathered_bytes=7.0)
    assert step_time(work, replace(RATES, overlap_replicated=1.0)).exposed == pytest.approx(17.0)
    assert step_time(work, replace(RATES, overlap_replicated=8.0)).exposed < 0.1


def test_fsdp2_reduces_gradients_in_every_pass_with_z2() -> None:
    work = replace(WORK, zero2_beside=1.0, passes=4.0, reduced_before=3.0, reduced_bytes=10.0, gathered_bytes=7.0)
    assert step_time(work, replace(RATES, overlap_replicated=1.0)).exposed == pytest.approx(4 * 10 + 7)


def test_deepspeeds_hooks_take_time_for_each_layer_of_z3() -> None:
    work = replace(WORK, zero3=1.0, layers=10.0)
    rates = replace(RATES, overlap_zero3=1.0, delay_s=0.0, zero3_layer_s=2.0)
    assert step_time(work, rates).exposed == pytest.approx(0.0)
    assert step_time(replace(work, zero3_hooks=1.0), rates).exposed == pytest.approx(20.0)


def test_the_delays_of_small_collectives_add_up_over_the_layers() -> None:
    work, rates = replace(WORK, zero3=1.0, layers=10.0), replace(RATES, overlap_zero3=1.0, delay_s=0.5)
    assert step_time(work, rates).exposed == pytest.approx(3 * 10 * 0.5)


def test_few_rows_an_expert_make_its_products_slower() -> None:
    routed = replace(WORK, products_flops=0.0, expert_flops=1000.0, expert_rows=100.0, expert_narrow=1.0)
    rates = replace(RATES, half_rows=100.0)
    assert step_time(routed, rates).forward == 40.0
    assert step_time(replace(routed, expert_rows=25.0), rates).forward == 100.0
    assert step_time(replace(routed, narrow=8.0), rates).forward == 40.0, "experts may be cut less than other matrices"
    assert step_time(replace(routed, expert_narrow=8.0), rates).forward == pytest.approx(20 * (1 + 8**0.7))


def test_narrow_products_need_more_rows() -> None:
    rates = replace(RATES, half_rows=100.0)
    for narrow in (0.25, 8.0):
        assert step_time(replace(WORK, narrow=narrow), rates).forward == pytest.approx(20 * (1 + narrow**0.7))


def test_nothing_hides_tensor_parallelism_in_forward_and_gradients_of_weights_half_in_megatrons_backward() -> None:
    megatron = replace(WORK, tensor_beside=1.0)
    short, long = (step_time(replace(megatron, tensor_bytes=size), RATES).tensor for size in (2.0, 1000.0))
    assert short == pytest.approx(2.0 + 2.0 / 2, rel=0.01)
    assert long == pytest.approx(1000 + 1000 - 20 / 2, rel=0.001)
    again = step_time(replace(megatron, tensor_bytes=2.0, recomputed=1.0), RATES).tensor
    assert again == pytest.approx(4.0 + 2.0 / 2, rel=0.01)
    gathered = step_time(replace(megatron, tensor_bytes=1000.0, sequence=1.0), RATES).tensor
    assert gathered == pytest.approx(1000 + 1500 - 20 / 2, rel=0.001)


def test_products_of_forward_hide_half_of_tensor_parallelism_where_it_runs_beside_them() -> None:
    whole = replace(WORK, tensor_bytes=2.0, tensor_beside=1.0)
    beside = replace(whole, tensor_beside_forward=1.0)
    assert step_time(beside, RATES).tensor == pytest.approx(step_time(whole, RATES).tensor - 2.0 / 2, rel=0.01)
    long = [replace(work, tensor_bytes=1000.0, recomputed=1.0) for work in (whole, beside)]
    hidden = step_time(long[0], RATES).tensor - step_time(long[1], RATES).tensor
    assert hidden == pytest.approx(2 * 20 / 2, rel=0.001)


def test_layers_that_wait_for_both_gradients_hide_nothing_and_gather_no_input_again() -> None:
    assert step_time(replace(WORK, tensor_bytes=2.0, sequence=1.0), RATES).tensor == pytest.approx(4.0)


def test_keys_and_values_go_round_beside_attention_and_heads_are_swapped_before_it() -> None:
    attending = replace(WORK, attention_flops=1000.0)
    rates = replace(RATES, attention_half_length=0.0, backward_attention=2.0)
    assert step_time(replace(attending, ring_bytes=1.0), rates).context == pytest.approx(0.0, abs=1e-3)
    assert step_time(replace(attending, ring_bytes=100.0), rates).context == pytest.approx(90 + 180, rel=0.01)
    assert step_time(replace(attending, ulysses_bytes=1.0), rates).context == pytest.approx(2.0)


def test_tokens_travel_to_experts_in_both_directions() -> None:
    work = replace(WORK, expert_bytes=3.0, expert_calls=2.0, passes=4.0)
    assert step_time(work, RATES).experts == pytest.approx(4 * 2 * (3 + 2))


def test_stages_wait_as_the_bubble_says_and_send_what_nothing_hides() -> None:
    assert step_time(replace(WORK, bubble=0.5), RATES).stages == pytest.approx(30.0)
    assert step_time(replace(WORK, stage_bytes=3.0), RATES).stages == pytest.approx(6.0)
    # The others compute 500 FLOPs less forward, and twice as many less backward.
    assert step_time(replace(WORK, bubble=0.5, head_flops=500.0), RATES).stages == pytest.approx(15.0)
    frozen = replace(WORK, bubble=0.5, head_flops=1000.0, frozen=1.0)
    assert step_time(frozen, replace(RATES, frozen_products=1.0)).stages == pytest.approx(0.0)
    interleaved = replace(WORK, stage_bytes=3.0, stages_overlap=1.0)
    assert step_time(interleaved, RATES).stages == pytest.approx(0.0, abs=0.01)


def test_activations_go_to_the_host_and_come_back() -> None:
    step = step_time(replace(WORK, offloaded_activation_bytes=5.0, passes=2.0), RATES)
    assert step.activations == 20.0
    assert step.whole == pytest.approx(2 * 60 + 20)


def test_more_nodes_wait_longer_for_the_slowest() -> None:
    one, two, eight = (step_time(replace(WORK, node_doublings=times), RATES) for times in (0.0, 1.0, 3.0))
    assert "stragglers" not in one.parts_s
    assert two.whole / one.whole == pytest.approx(1.005)
    assert eight.whole / one.whole == pytest.approx(1.005**3)
    assert eight.parts_s["stragglers"] == pytest.approx(eight.whole - one.whole)


def test_the_parts_of_parallelism_are_named_only_where_there_are_any() -> None:
    assert "pipeline" not in step_time(WORK, RATES).parts_s
    parts = step_time(replace(WORK, bubble=0.5, tensor_bytes=2.0), RATES).parts_s
    assert {"pipeline", "tensor parallelism"} <= set(parts)
    assert sum(parts.values()) == pytest.approx(step_time(replace(WORK, bubble=0.5, tensor_bytes=2.0), RATES).whole)
