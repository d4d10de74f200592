"""Products in fp8 and their casts: what they take, by recipe and with a compiler or without, and what is not known."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from llmexp.record.predicted import Prediction
from llmexp.training.predict import unpredicted
from llmexp.training.predict.rates import Rates
from llmexp.training.predict.schedule import step_time
from llmexp.training.predict.work import Work, work_of
from tests.planning import make_plan

WORDS = ("model=7b", "hardware=h100", "hardware.devices_per_node=1", "engine=torch", "data.seq_len=4096")
LAYERS, HIDDEN, WIDE, TOKENS = 32, 4096, 11008, 4096
INPUTS = TOKENS * LAYERS * (3 * HIDDEN + WIDE)
ALL_INPUTS = TOKENS * LAYERS * (6 * HIDDEN + WIDE)
RESULTS = TOKENS * LAYERS * (5 * HIDDEN + 2 * WIDE)
WEIGHTS = LAYERS * (4 * HIDDEN**2 + 3 * HIDDEN * WIDE)

NOTHING = Work(**{field.name: 0.0 for field in fields(Work)})
ONES = Rates(**{field.name: 1.0 for field in fields(Rates)})
WORK = replace(NOTHING, passes=1.0, tokens=100.0, narrow=1.0, fp8_narrow=1.0, expert_rows=1.0)
WORK = replace(WORK, seq_len=50.0, fp8_flops=1000.0)
RATES = replace(ONES, fp8_flops_per_s=200.0, fp8_share=0.5, peak_flops_per_s=100.0, products_share=0.25, half_rows=0.0)


def work(*words: str) -> Work:
    return work_of(make_plan(*WORDS, "method=F+C", "precision=fp8_pure", *words))


def predicted(*words: str) -> Prediction:
    found = make_plan(*WORDS, *words).predicted
    assert found is not None
    return found


@pytest.mark.parametrize("method", ["F", "F+C"])
def test_a_stage_has_its_share_of_products_and_casts_and_the_head_is_no_less(method: str) -> None:
    words = (f"method={method}", "hardware.devices_per_node=4", "batch.accumulation=8")
    whole, stage = (work(*words, f"parallelism.{degree}=4") for degree in ("dp", "pp"))
    for name in ("fp8_flops", "cast_bytes", "cast_bytes_behind", "cast_layers", "cast_layers_behind"):
        assert getattr(stage, name) == pytest.approx(getattr(whole, name) / 4), name
    assert stage.products_flops == pytest.approx(whole.products_flops)


def test_all_products_of_layers_are_in_fp8_and_the_head_is_not() -> None:
    low, high = work(), work("precision=bf16_pure")
    assert low.fp8_flops == 2 * TOKENS * WEIGHTS
    assert low.products_flops == 2 * TOKENS * 32000 * HIDDEN
    assert low.fp8_flops + low.products_flops == high.products_flops
    assert (high.fp8_flops, high.cast_bytes, high.cast_bytes_behind, high.cast_layers) == (0, 0, 0, 0)


def test_a_matrix_is_read_for_its_scale_and_written_in_the_order_of_each_product() -> None:
    found = work()
    assert found.cast_bytes == (2 + 3) * (INPUTS + WEIGHTS)
    assert found.cast_bytes_behind == 3 * (INPUTS + WEIGHTS) + (2 + 2 * 3) * RESULTS
    assert found.cast_layers == found.cast_layers_behind == 0


def test_scales_of_rows_are_found_for_each_order_and_multiplied_into_gradients() -> None:
    rows = work("precision.scaling=rowwise")
    assert rows.cast_bytes == work().cast_bytes
    assert rows.cast_bytes_behind == (5 + 4) * (INPUTS + WEIGHTS) + 2 * 5 * RESULTS


def test_gradients_of_weights_in_16_bits_cast_less() -> None:
    found = work("precision.scaling=rowwise_with_gw_hp")
    assert found.weights_in_16_bits == 1
    assert found.cast_bytes_behind == 4 * INPUTS + 5 * (WEIGHTS + RESULTS)


def test_without_a_compiler_each_operation_is_a_kernel_that_reads_and_writes() -> None:
    found = work("method=F")
    assert found.cast_bytes == 33 * (ALL_INPUTS + WEIGHTS)
    assert found.cast_layers == pytest.approx(LAYERS * 7 * 22 / 39)
    assert found.cast_layers_behind > 2 * found.cast_layers


def test_products_take_their_flops_over_the_share_of_the_fp8_peak() -> None:
    step = step_time(WORK, replace(RATES, backward_products=2.0))
    assert (step.forward, step.backward) == (10.0, 20.0)
    rows = step_time(WORK, replace(RATES, half_rows=100.0)).forward
    assert rows == 10.0 * (1 + 200 / 100)


def test_gradients_of_weights_in_16_bits_take_as_long_as_there() -> None:
    step = step_time(replace(WORK, weights_in_16_bits=1.0), replace(RATES, backward_products=2.0))
    assert step.backward == pytest.approx(10.0 + 40.0)


def test_casts_take_memory_and_their_launches_decide_where_they_are_many() -> None:
    cast = step_time(replace(WORK, cast_bytes=5.0, cast_bytes_behind=7.0), replace(RATES, cast_accesses=2.0))
    assert (cast.forward, cast.backward) == (20.0, 24.0)
    launched = step_time(replace(WORK, cast_layers=10.0, cast_layers_behind=30.0), replace(RATES, launch_s=100.0))
    assert launched.forward == pytest.approx(1000.0, rel=1e-3)
    assert launched.backward == pytest.approx(3000.0, rel=1e-3)


@pytest.mark.parametrize(
    ("faster", "slower"),
    [
        (("precision=fp8_pure", "method=F+C"), ("precision=bf16_pure", "method=F+C")),
        (("precision=bf16_pure", "method=F"), ("precision=fp8_pure", "method=F")),
        (("precision=fp8_pure", "method=F+C"), ("precision=fp8_pure", "method=F+C", "precision.scaling=rowwise")),
    ],
)
def test_fp8_is_faster_where_casts_are_fused(faster, slower) -> None:
    assert predicted(*faster).rate > 1.05 * predicted(*slower).rate


def test_its_interval_is_the_widest_and_of_no_run() -> None:
    low, high = predicted("method=F+C", "precision=fp8"), predicted("method=F+C", "precision=bf16_mixed")
    assert (low.held_out_runs, low.holds[0]) == (0, pytest.approx(high.holds[0]))
    assert low.holds[1] > 1.02 * high.holds[1]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("hardware=a100",), "emulated fp8 is rounded, and multiplied otherwise, at a speed that is not predicted"),
        (("hardware=b200", "precision.scaling=mxfp8"), "precision.scaling=mxfp8 is not predicted"),
        (("precision.scaling=delayed",), "precision.scaling=delayed is not predicted"),
        (("engine=deepspeed",), "fp8 by engine=deepspeed is not predicted"),
        (("engine=megatron", "precision.scaling=rowwise"), "precision.scaling=rowwise is not predicted"),
        (("engine=megatron", "model=mixtral"), "experts in fp8 are not predicted"),
    ],
)
def test_where_fp8_is_not_predicted_there_is_a_reason(words, reason: str) -> None:
    assert unpredicted(make_plan(*WORDS, "precision=fp8", *words)) == reason


def test_without_a_peak_of_fp8_nothing_is_predicted() -> None:
    plan = make_plan(*WORDS, "precision=fp8")
    hardware = plan.config.hardware.model_copy(update={"peak_flops_per_s": {"bf16": 1e15}})
    without = plan.model_copy(update={"config": plan.config.model_copy(update={"hardware": hardware})})
    assert unpredicted(without) == "without hardware.peak_flops_per_s.fp8"
