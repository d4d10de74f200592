"""Published speeds can be read, are possible, become plans or say why not, and are in no fit."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from math import log
from pathlib import Path

import pytest
import yaml

from benchmarks.prediction import cells, judge
from benchmarks.prediction.published import Judged, corrected, judged, median_over_sources, published_cells
from benchmarks.prediction.published_fits import TO_FIT
from benchmarks.prediction.published_plans import Planned, planned, words_and_assumptions
from benchmarks.prediction.published_programs import engine_of, recomputed_share
from benchmarks.prediction.published_rows import KINDS, RECOMPUTATIONS, UNITS, Row, published_rows
from llmexp.training.plan.fit import fit_of

HARDWARE = Path("conf/hardware")
# Dense peaks as multiples of that in bf16.
PEAKS = {"": 1, "bf16_mixed": 1, "bf16_pure": 1, "fp16": 1, "fp8": 2, "mxfp8": 2, "nvfp4": 4}


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return published_rows()


@pytest.fixture(scope="module")
def one_of_each(rows) -> list[Judged]:
    """The run of each source on the fewest cards."""
    few = {row.source: row for row in sorted(rows, key=lambda row: -row.devices)}
    return judged(few.values())


def test_there_are_enough_rows_of_enough_sources(rows) -> None:
    assert len(rows) >= 150
    assert len({row.source for row in rows}) >= 12
    assert len({row.hardware for row in rows}) >= 10


def test_every_row_is_of_known_kinds(rows) -> None:
    for row in rows:
        assert row.kind in KINDS
        assert row.unit in UNITS
        assert row.precision in PEAKS
        assert row.recomputation in ("", *RECOMPUTATIONS) or 0 < float(row.recomputation) < 1
        assert {row.flash, row.compile, row.tied, row.sequence_parallel} <= {"", "yes", "no"}
        assert row.sharding in (None, 0, 1, 2, 3)
        assert row.adapter in ("", "lora", "qlora")


def test_every_row_says_where_it_is_from(rows) -> None:
    for row in rows:
        assert row.source
        assert re.match(r"https://[^ ]+$", row.url)
        assert re.match(r"20\d\d(-\d\d){0,2}$", row.date)


def test_no_row_is_there_twice(rows) -> None:
    counted = Counter(replace(row, url="", value=0.0, memory_gb=None) for row in rows if row.source == "aleph-alpha")
    assert max(Counter(rows).values()) == 1
    # The paper measured some layouts twice, in two of its files.
    assert max(counted.values()) <= 2


def test_degrees_and_batches_multiply_to_what_is_printed(rows) -> None:
    for row in rows:
        assert row.replicas * row.tp * row.pp * row.cp == row.devices, row
        assert row.devices % (row.nodes or 1) == 0, row
        if row.micro_batch and row.accumulation and row.global_batch:
            assert row.micro_batch * row.accumulation * row.replicas == row.global_batch, row


def test_no_card_computes_faster_than_it_can(rows) -> None:
    known = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in HARDWARE.glob("*.yaml")}
    for row in rows:
        card = known.get(row.hardware.removesuffix("_96gb"))
        if card is None or row.doubted:
            continue
        peaks = card.get("peak_flops_per_s") or known[card["defaults"][0]]["peak_flops_per_s"]
        assert row.tokens_per_s_per_device * least_flops(row) < PEAKS[row.precision] * half_peak(peaks), row


def half_peak(peaks: Mapping[str, float]) -> float:
    """In bf16, or in fp16 of a card before Ampere."""
    return peaks["bf16" if "bf16" in peaks else "fp16"]


def test_an_impossible_speed_is_found(made_up) -> None:
    fast = replace(made_up, value=100 * made_up.value)
    assert fast.tokens_per_s_per_device * least_flops(fast) > 989e12


def least_flops(row: Row) -> float:
    """Of a token: each product of matrices once in every pass that the row names, and half the attention."""
    assert row.hidden
    assert row.heads
    assert row.layers
    width = row.heads * (row.head_dim or row.hidden // row.heads)
    attention = 2 * row.hidden * width * (1 + (row.kv_heads or row.heads) / row.heads)
    mlp = (2 if row.family == "gpt" else 3) * row.hidden * (row.intermediate or 0) * (row.top_k or 1)
    passes = (2 if row.adapter else 3) + (row.recomputation == "full")
    layers = row.layers * (attention + mlp + width * row.seq_len)
    return 2.0 * passes * layers + 2.0 * 2 * row.hidden * (row.vocab or 0)


def test_the_plans_flops_agree(one_of_each) -> None:
    plans = [(one.row, one.planned.plan) for one in one_of_each if one.planned.plan]
    assert len(plans) >= 15
    for row, plan in plans:
        rate = row.tokens_per_s_per_device * (plan.flops_per_token or 0.0)
        assert row.doubted or rate < half_peak(plan.config.hardware.peak_flops_per_s), row


def test_units_agree(made_up) -> None:
    as_tokens = replace(made_up, unit="tokens/s/GPU", value=1000.0)
    step_s = 4 * 2 * made_up.seq_len / 1000.0
    others = {"tokens/s": 4000.0, "samples/s": 4000.0 / made_up.seq_len, "s/step": step_s, "ms/step": 1000 * step_s}
    others["s/1024 samples"] = 1024 * made_up.seq_len / 4000.0
    assert set(others) | {"tokens/s/GPU"} == set(UNITS)
    for unit, value in others.items():
        same = replace(made_up, unit=unit, value=value)
        assert same.tokens_per_s_per_device == pytest.approx(as_tokens.tokens_per_s_per_device)
    with pytest.raises(ValueError, match="samples of a step"):
        assert replace(made_up, unit="s/step", micro_batch=None).tokens_per_s_per_device


@pytest.mark.slow
def test_no_fit_reads_them(monkeypatch) -> None:
    fitted = []
    monkeypatch.setattr(judge, "fitted", lambda runs, constants, *start: fitted.append(runs.cells))
    judge.Judge()
    monkeypatch.setattr(cells, "PUBLISHED", Path("nowhere.csv"))
    judge.Judge()
    seen, without = fitted
    assert seen == without
    assert not {cell.table for cell in seen} & {row.source for row in published_rows()}
    assert not list(cells.RESULTS.rglob("published.csv"))


def test_each_source_becomes_a_plan_or_says_why_not(one_of_each) -> None:
    for one in one_of_each:
        assert bool(one.planned.plan) != bool(one.planned.refused), one.row
        assert bool(one.tokens_per_s) != bool(one.reason), one.row
    assert len([one for one in one_of_each if one.tokens_per_s]) >= 10


def test_a_plan_has_what_its_row_says(one_of_each) -> None:
    for one in one_of_each:
        row, plan = one.row, one.planned.plan
        if plan is None:
            continue
        assert plan.dims.world_size == row.devices
        assert (plan.dims.tp, plan.dims.pp, plan.dims.cp) == (row.tp, row.pp, row.cp)
        assert plan.config.data.seq_len == row.seq_len
        assert plan.batch.micro == row.micro_batch or (row.micro_batch is None and row.samples % plan.batch.micro == 0)
        told = plan.techniques.recomputation == (recomputed_share(row) > 0)
        assert told or (TO_FIT in one.planned.assumed and not row.recomputation)
        assert row.samples is None or row.micro_batch is None or plan.batch.global_ == row.samples


def test_what_a_source_does_not_say_is_named(made_up) -> None:
    _, nothing = words_and_assumptions(made_up)
    assert nothing == []
    silent = replace(made_up, micro_batch=None, accumulation=None, recomputation="", flash="", compile="", optimizer="")
    _, assumed = words_and_assumptions(replace(silent, sharding=None, nodes=None))
    assert set(assumed) == {
        "machines of 8 cards",
        "a micro batch of 1",
        "one pass a step",
        "no recomputation",
        "fused attention",
        "nothing compiled",
        "no sharding",
        "AdamW",
    }


def test_fp16_is_planned_as_itself_so_that_older_cards_have_plans(made_up) -> None:
    half = planned(replace(made_up, precision="fp16", hardware="v100"))
    assert half.plan
    assert half.plan.config.precision.name == "fp16"
    assert half.assumed == ()
    (one,) = judged([half.row])
    assert one.error is not None


def test_kernels_are_those_that_a_source_names(made_up) -> None:
    said = "norm, MLP and loss in fused kernels; attention by FlashAttention-3"
    plain, named = (
        planned(replace(made_up, hardware="h200")).plan,
        planned(replace(made_up, hardware="h200", note=said)).plan,
    )
    assert plain
    assert named
    assert (plain.config.kernels.flash, plain.config.kernels.liger) == ("fa2", False)
    assert named.config.kernels.flash != "fa2"
    assert named.config.kernels.liger


@pytest.mark.parametrize(
    ("framework", "date", "precision", "scaling"),
    [
        ("megatron-bridge", "2025-09", "fp8", "tensorwise"),
        ("megatron-bridge", "2025-09", "mxfp8", "mxfp8"),
        ("nemo", "2025-10-24", "fp8", "tensorwise"),
        ("nemo", "2024-08", "fp8", "delayed"),
        ("megatron-lm", "2025", "fp8", "delayed"),
        ("torchtitan", "2025", "mxfp8", "mxfp8"),
    ],
)
def test_low_precision_has_the_scales_of_its_program(made_up, framework, date, precision, scaling) -> None:
    row = replace(made_up, framework=framework, date=date, precision=precision, note="")
    words, assumed = words_and_assumptions(row)
    assert f"precision.scaling={scaling}" in words
    of_the_step = {"tensorwise": "scales of the step in fp8", "delayed": "scales of earlier steps in fp8"}
    assert of_the_step.get(scaling, "") in ["", *assumed]


def test_scales_that_a_source_prints_are_not_assumed(made_up) -> None:
    row = replace(made_up, framework="nemo", date="2025-10", precision="fp8", note="packed; scales of earlier steps")
    words, assumed = words_and_assumptions(row)
    assert "precision.scaling=delayed" in words
    assert not [one for one in assumed if "scales" in one]


def test_what_nvidias_recipes_set_is_assumed_of_their_programs_alone(made_up) -> None:
    row = replace(made_up, framework="megatron-bridge", sharding=None, layers=126, devices=64, nodes=None, tp=2, pp=8)
    row = replace(row, sequence_parallel="")
    plan, other = planned(row).plan, replace(row, framework="megatron-core")
    assert plan
    assert (plan.techniques.zero_stage, plan.dims.sequence, plan.dims.ends_as_layers) == (1, True, "both")
    assert "optimizer states, sequences and stages by its recipes" in planned(row).assumed
    assert "parallelism.pp=8 does not divide model.num_layers=126" in planned(other).refused
    even = planned(replace(row, layers=32)).plan
    assert even
    assert even.dims.ends_as_layers is None
    # Its recipes of adapters shard nothing.
    adapted = planned(replace(row, adapter="lora", kind="finetune")).plan
    assert adapted
    assert adapted.techniques.zero_stage == 0


def test_fp8_by_transformer_engine_is_predicted_and_not_started(rows) -> None:
    row = next(row for row in rows if row.source == "megatron-bridge" and not row.experts)
    (one,) = judged([row])
    assert one.error is not None
    assert "needs transformer_engine" in one.planned.skipped


def test_frameworks_train_like_the_nearest_engine(made_up) -> None:
    by_name = {"megatron-bridge": "megatron", "nemo": "megatron", "deepspeed": "deepspeed", "torchtitan": "torch"}
    assert {name: engine_of(replace(made_up, framework=name)) for name in by_name} == by_name


def test_other_families_and_cards_are_refused(made_up) -> None:
    assert "no shape" in planned(replace(made_up, family="deepseek")).refused
    assert "nvfp4 have no plan" in planned(replace(made_up, precision="nvfp4")).refused
    assert "abacus" in planned(replace(made_up, hardware="abacus")).refused
    assert planned(replace(made_up, tp=3, devices=3)).refused


def test_a_plain_mlp_keeps_its_weights(made_up) -> None:
    plain = planned(replace(made_up, family="gpt", intermediate=16384))
    gated = planned(replace(made_up, intermediate=10944))
    assert plain.plan
    assert gated.plan
    assert plain.plan.parameters == gated.plan.parameters
    assert plain.assumed != gated.assumed


def test_an_error_is_that_of_the_step(made_up) -> None:
    (one,) = judged([made_up])
    assert one.tokens_per_s
    assert one.error == pytest.approx(log(made_up.tokens_per_s_per_device / one.tokens_per_s))
    (doubted,) = judged([replace(made_up, note="doubt: made up")])
    assert doubted.error is None
    (cell,) = published_cells([made_up])
    assert cell.step_s == pytest.approx(4 * 2 * 4 * made_up.seq_len / made_up.value)


def test_one_run_kept_calibrates_the_others_and_is_not_judged(made_up) -> None:
    def half_as_fast(seq_len: int, devices: int = 4) -> Judged:
        row = replace(made_up, seq_len=seq_len, devices=devices, unit="tokens/s/GPU", value=1.0)
        (one,) = judged([row])
        assert one.tokens_per_s
        (slow,) = judged([replace(row, value=one.tokens_per_s / 2)])
        return slow

    group = [half_as_fast(length) for length in (1024, 2048, 4096)]
    left = corrected([*group, half_as_fast(3072, devices=8)])
    assert len(left) == 3
    assert all(log(0.5) < error < -0.05 for error in left)


def test_a_source_counts_once(made_up) -> None:
    def of(source: str, share: float) -> Judged:
        row = replace(made_up, source=source, unit="tokens/s/GPU", value=1000.0)
        return Judged(Planned(row, (), (), None), 1000.0 / share)

    rows = [of("one", 1.1)] * 9 + [of("two", 1.5), of("three", 2.0)]
    assert median_over_sources(rows) == pytest.approx(0.5)


def test_a_no_is_said_of_the_leanest_program(made_up) -> None:
    full = replace(made_up, micro_batch=6, recomputation="none", sharding=3, devices=8)
    plan = planned(full).plan
    (one,) = judged([full])
    assert plan
    own = fit_of(plan, 6)
    assert own
    assert (own.verdict, one.fits, one.need_bytes) == ("no", "uncertain", own.need)
