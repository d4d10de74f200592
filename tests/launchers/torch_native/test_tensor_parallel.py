"""Matrices cut over real gloo ranks by engine=torch: the training of one plain process, and the bytes that are planned.

Alone, along the sequence, and with replicas that hold all of a rank's part, share it out, or some of them do.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cut_training import Layouts, compare_saved
from marks import slow
from planning import Measurement

pytestmark = pytest.mark.ranks

TP, SEQUENCE = "parallelism.tp=2", "parallelism.tp=2 parallelism.sequence=true"
# Measured: 1e-7 of losses, 4e-7 of gradient norms.
ROWS = {
    "Naive": TP,
    "F, sequence": f"method=F {SEQUENCE}",
    "R, sequence": f"method=R {SEQUENCE}",
    "F+R": f"{TP} method=F+R",
    "RS": f"{TP} method=RS",
    "Z2": f"{TP} method=Z2",
    "Z3, sequence": f"method=Z3 {SEQUENCE}",
    "padded, sequence": f"data.pack=false {SEQUENCE}",
    "bf16_mixed": f"{TP} precision=bf16_mixed",
    "bf16_mixed, Z3": f"{TP} precision=bf16_mixed method=Z3",
    "dp 2": f"{TP} parallelism.dp=2",
    "dp 2, sequence": f"parallelism.dp=2 {SEQUENCE}",
    "dp 2, Z2": f"{TP} parallelism.dp=2 method=Z2",
    "shard 1, Z3": "parallelism.dp=2 parallelism.shard=1 method=Z3",
    "shard 2 of dp 4, Z3": "parallelism.dp=4 parallelism.shard=2 method=F+Z3",
    "shard 2 of dp 4, Z2": "parallelism.dp=4 parallelism.shard=2 method=Z2",
    "shard 1 of dp 2, Z3": f"parallelism.dp=2 parallelism.shard=1 method=Z3 {SEQUENCE}",
    "dp 2, F+R+Z3, sequence": f"parallelism.dp=2 method=F+R+Z3 {SEQUENCE}",
}
QUICK = {"Naive", "R, sequence", "Z3, sequence", "bf16_mixed", "shard 1, Z3"}
LAYOUTS = Layouts(ROWS, QUICK, {*ROWS} - {"F, sequence", "Z2", "dp 2, sequence", "shard 2 of dp 4, Z2"})


@pytest.fixture(scope="module")
def observed(observe: Callable[..., Measurement], asked: set[str]) -> Measurement:
    return LAYOUTS.train(observe, asked)


@pytest.mark.parametrize("name", LAYOUTS.fp32)
def test_ranks_compute_what_one_process_computes(observed: Measurement, name: str) -> None:
    LAYOUTS.compare(observed, name)


@pytest.mark.parametrize("name", LAYOUTS.bf16)
def test_bf16_follows_the_curve_of_fp32(observed: Measurement, name: str) -> None:
    LAYOUTS.compare_bf16(observed, name)


@pytest.mark.parametrize("name", LAYOUTS.every)
def test_every_rank_holds_what_is_planned(observed: Measurement, name: str) -> None:
    LAYOUTS.compare_state(observed, name)


@pytest.mark.parametrize("words", [f"parallelism.dp=1 {SEQUENCE}", slow(f"parallelism.dp=2 {TP} method=Z3")])
def test_transformers_loads_the_whole_model_that_was_saved(observe: Callable[..., Measurement], words: str) -> None:
    compare_saved(observe, words)
