"""Positions are told by angles, position x frequency.

Angles of frequencies rounded to bf16 are off by most of a radian after some thousand positions.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from planning import Measurement, make_plan

POSITION, WITHIN_RADIANS = 4096, 0.01
PRECISIONS = ("fp32", "bf16_mixed", "bf16_pure")
LAYOUTS = {
    "deepspeed": ["method=Naive", "method=Z2", "method=Z3", "method=Z3+O"],
    "torch": ["method=Naive", "method=Z1", "method=Z3", "method=Z3+O", "parallelism.pp=2 batch.accumulation=2"],
}


@pytest.mark.ranks
@pytest.mark.parametrize("engine", LAYOUTS)
def test_rotary_frequencies_are_exact_in_every_layout_and_precision(
    observe: Callable[..., Measurement], engine: str
) -> None:
    plans = {
        f"{layout} {precision}": make_plan(
            "hardware=cpu", "model=tiny", f"engine={engine}", f"precision={precision}", *layout.split()
        )
        for layout in LAYOUTS[engine]
        for precision in PRECISIONS
    }
    run = {name: plan for name, plan in plans.items() if plan.skip is None}
    assert len(run) >= 2 * len(LAYOUTS[engine])
    model = next(iter(run.values())).config.model
    size = model.head_dim or model.hidden_size // model.num_heads
    angles = [POSITION * model.rope_theta ** (-index / size) for index in range(0, size, 2)]
    for name, ranks in observe(run, worker="rotary_worker").items():
        for rank in ranks:
            assert rank["frequencies"], name
            for frequencies in rank["frequencies"]:
                assert [POSITION * frequency for frequency in frequencies] == pytest.approx(
                    angles, abs=WITHIN_RADIANS
                ), name
