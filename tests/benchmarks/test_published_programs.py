"""What the program of a published run did is planned: what it recomputed, its kernels, and what ran beside what."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.prediction.published_plans import planned
from benchmarks.prediction.published_programs import engine_of
from benchmarks.prediction.published_rows import published_rows
from llmexp.training.predict.rates import constants
from llmexp.training.predict.schedule import step_time


@pytest.mark.parametrize(
    ("recomputation", "framework", "note", "layers"),
    [
        ("none", "torchtitan", "", 0),
        ("full", "torchtitan", "", 32),
        ("0.25", "others", "", 8),
        # Of a layer's products those of keys, of attention's result and of one of three matrices of the MLP.
        ("selective", "torchtitan", "", 12),
        ("selective", "torchtitan", "recomputation by layers", 16),
        ("selective", "others", "", 0),
    ],
)
def test_what_a_program_recomputes_is_planned_as_layers(made_up, recomputation, framework, note, layers) -> None:
    assert made_up.layers == 32
    row = replace(made_up, recomputation=recomputation, framework=framework, note=note)
    plan = planned(row).plan
    assert plan
    assert plan.skip is None
    assert round(plan.techniques.recomputation * plan.config.memory.recomputed_share(32) * 32) == layers


def test_attention_that_no_engine_has_is_slower_by_what_is_known_of_it(made_up) -> None:
    old = planned(replace(made_up, note="attention in Triton by its script", hardware="a100"))
    new = planned(replace(made_up, hardware="a100"))
    assert (old.cell.attention_share, new.cell.attention_share) == (0.325, None)
    slower = old.cell.evidence(constants()).predicted_s({}) - new.cell.evidence(constants()).predicted_s({})
    assert 0.01 < slower / new.cell.evidence(constants()).predicted_s({}) < 0.2


@pytest.mark.parametrize(
    ("framework", "date", "note", "beside"),
    [
        ("pytorch", "2025", "", False),
        ("torchtitan", "2025", "", False),
        ("torchtitan", "2025", "asynchronous tp", True),
        ("automodel", "2025", "", False),
        ("nanotron", "2025", "", True),
        ("megatron-lm", "2022-05", "", True),
        ("megatron-lm", "2021-04", "", False),
        ("megatron-deepspeed", "2022-02", "", False),
        ("megatron-like", "2023-12-16", "", False),
        ("megatron-oneflow", "2021-05", "", True),
        ("nemo", "2022-09", "", True),
    ],
)
def test_tensor_parallelism_sends_beside_gradients_where_its_program_did(
    made_up, framework, date, note, beside
) -> None:
    made = planned(replace(made_up, framework=framework, date=date, note=note, devices=4, tp=2))
    assert made.cell.work.tensor_beside == float(beside)


@pytest.mark.parametrize(
    ("framework", "note", "beside"),
    [
        ("nemo", "tensor communication overlapped", True),
        ("nemo", "", False),
        ("torchtitan", "asynchronous tp", True),
        ("torchtitan", "", False),
    ],
)
def test_tensor_parallelism_sends_beside_forward_where_its_source_says_so(made_up, framework, note, beside) -> None:
    made = planned(replace(made_up, framework=framework, note=note, devices=4, tp=4))
    assert made.cell.work.tensor_beside_forward == float(beside)


def test_a_program_that_moves_a_part_of_its_activations_waits_for_that_part(made_up) -> None:
    row = replace(made_up, recomputation="none", offload="activations", accumulation=1)
    everything, part = (planned(replace(row, note=note)).cell for note in ("", "0.25 of the activations offloaded"))
    moved = everything.work.offloaded_activation_bytes
    assert part.work.offloaded_activation_bytes == pytest.approx(0.25 * moved)
    saved_s = everything.evidence(constants()).predicted_s({}) - part.evidence(constants()).predicted_s({})
    assert saved_s == pytest.approx(0.75 * 2 * moved / everything.rates(constants()).host_link_bytes_per_s)


@pytest.mark.parametrize(
    ("framework", "date", "cut", "parts"),
    [
        ("megatron-lm", "2021-04", "no", 4),
        ("megatron-deepspeed", "2022-02", "no", 4),
        ("megatron-lm", "2021-04", "yes", 1),
        ("megatron-lm", "2023-06", "no", 1),
        ("megatron-like", "2023-01", "no", 1),
    ],
)
def test_stages_of_older_megatron_send_a_part_that_is_gathered(made_up, framework, date, cut, parts) -> None:
    pipeline = replace(made_up, framework=framework, layers=24, devices=8, tp=4, pp=2, schedule="1f1b")
    old, new = (planned(replace(pipeline, date=when, sequence_parallel=cut)).cell.work for when in (date, "2026-01"))
    assert new.stage_bytes == pytest.approx(parts * old.stage_bytes)
    gathered = old.tensor_bytes - new.tensor_bytes
    assert gathered == pytest.approx(new.stage_bytes - old.stage_bytes)


def test_matrices_that_each_gather_their_input_send_more(made_up) -> None:
    once, each = (
        planned(replace(made_up, framework=framework, devices=4, tp=4)).cell
        for framework in ("pytorch", "kempnerforge")
    )
    assert each.work.tensor_bytes == pytest.approx(1.75 * once.work.tensor_bytes)
    assert each.work.tensor_calls == pytest.approx(1.75 * once.work.tensor_calls)
    slower = each.evidence(constants()).predicted_s({}) / once.evidence(constants()).predicted_s({})
    assert 1.01 < slower < 1.75


@pytest.mark.parametrize(
    ("framework", "date", "note", "beside"),
    [
        ("megatron-lm", "2023-07", "", False),
        ("megatron-lm", "2023-08", "", True),
        ("megatron-llama", "2023-09", "communication not overlapped; settings by its script", False),
        ("megatron-llama", "2023-09", "communication overlapped; settings by its script", True),
        ("megatron-like", "2023-12", "", False),
        ("megatron-oneflow", "2021-05", "", True),
        ("nemo", "2022-09", "", True),
        ("pytorch", "2021", "", True),
    ],
)
def test_gradients_are_reduced_beside_backward_where_their_program_did(made_up, framework, date, note, beside) -> None:
    row = replace(made_up, framework=framework, date=date, note=note, sharding=1, recomputation="none")
    made, slow_network = planned(row), 1e9
    rates = replace(made.cell.rates(constants()), link_bytes_per_s=slow_network)
    exposed, sent = step_time(made.cell.work, rates).exposed, made.cell.work
    added = (sent.reduced_bytes + sent.gathered_bytes) / slow_network
    assert (exposed == pytest.approx(added)) != beside
    assert exposed < 1.0001 * added


def test_automodel_is_torch_and_nemo_is_megatron() -> None:
    engines = {row.framework: engine_of(row) for row in published_rows()}
    assert {framework for framework in engines if "automodel" in framework} == {"automodel"}
    assert (engines["automodel"], engines["nemo"]) == ("torch", "megatron")
