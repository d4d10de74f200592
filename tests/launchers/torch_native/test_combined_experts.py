"""Experts that gloo ranks share by engine=torch, together with other degrees: the training of one plain process.

Shared sequences, cut matrices and stages; and the bytes planned.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cut_training import Layouts
from planning import Measurement
from small_families import DEEPSEEK, QWEN

pytestmark = pytest.mark.ranks

MOE = "model=tiny-moe"
RING, ULYSSES = (f"parallelism.ep=2 parallelism.cp=2 parallelism.cp_kind={kind}" for kind in ("ring", "ulysses"))
ROWS = {
    "cp": f"{RING} {MOE}",
    "cp, ulysses, R": f"{ULYSSES} {MOE} method=R",
    "cp, F+Z2": f"{RING} {MOE} method=F+Z2",
    "cp, ulysses, F+R+Z3, padded": f"{ULYSSES} {MOE} method=F+R+Z3 data.pack=false",
    "dp cp": f"{RING} {MOE} parallelism.dp=2",
    "dp cp, Z3": f"{RING} {MOE} parallelism.dp=2 method=Z3",
    "cp, qwen3_moe": f"{RING} {QWEN}",
    "cp, ulysses, qwen3_moe, R+Z3": f"{ULYSSES} {QWEN} method=R+Z3",
    "cp, qwen3_moe, F": f"{RING} {QWEN} method=F",
    "cp, deepseek_v3": f"{RING} {DEEPSEEK}",
    "cp, ulysses, deepseek_v3, R+Z3": f"{ULYSSES} {DEEPSEEK} method=R+Z3",
    "cp, ulysses, deepseek_v3, RS": f"{ULYSSES} {DEEPSEEK} method=RS",
    "dp cp, ep 4, Z2": f"parallelism.ep=4 parallelism.dp=2 parallelism.cp=2 {MOE} method=Z2",
}
QUICK = {*ROWS}
LAYOUTS = Layouts(ROWS, QUICK, QUICK)


@pytest.fixture(scope="module")
def observed(observe: Callable[..., Measurement], asked: set[str]) -> Measurement:
    return LAYOUTS.train(observe, asked)


@pytest.mark.parametrize("name", LAYOUTS.fp32)
def test_ranks_compute_what_one_process_computes(observed: Measurement, name: str) -> None:
    LAYOUTS.compare(observed, name)


@pytest.mark.parametrize("name", LAYOUTS.every)
def test_every_rank_holds_what_is_planned(observed: Measurement, name: str) -> None:
    LAYOUTS.compare_state(observed, name)
