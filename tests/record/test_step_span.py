"""A profiled step as spans, from the sums of a breakdown."""

from __future__ import annotations

import pytest

from llmexp.record import step_span
from llmexp.record.breakdown import ModuleTime


def all_of(span, above=""):
    yield span.name, above, span.start_s, span.end_s
    for part in span.parts:
        yield from all_of(part, span.name)


def test_phases_hold_their_modules_and_what_was_no_computation(profiled_steps):
    span = step_span.step_span(profiled_steps, end_s=100.0)
    assert list(all_of(span)) == [
        ("profiled step", "", pytest.approx(99.990), 100.0),
        ("forward", "profiled step", pytest.approx(99.990), pytest.approx(100.0)),
        ("Layer", "forward", pytest.approx(99.990), pytest.approx(99.997)),
        ("Attention", "Layer", pytest.approx(99.990), pytest.approx(99.994)),
        ("idle", "forward", pytest.approx(99.997), pytest.approx(100.0)),
    ]
    assert span.parts[0].parts[0].known == {"gemm_share": 0.5}


def test_what_is_computed_again_stands_apart(profiled_steps):
    [rank] = profiled_steps.ranks
    again = rank.modules[0].model_copy(update={"recomputed": True})
    changed = profiled_steps.model_copy(update={"ranks": [rank.model_copy(update={"modules": [*rank.modules, again]})]})
    names = [name for name, *_ in all_of(step_span.step_span(changed, 100.0))]
    assert names[2:] == ["Layer", "Attention", "Layer, recomputed", "idle"]


def test_the_longest_modules_are_shown(profiled_steps, monkeypatch):
    monkeypatch.setattr(step_span, "MOST_MODULES", 2)
    [rank] = profiled_steps.ranks
    rows = [_row("Small", 1), _row("Large", 9), *rank.modules]
    changed = profiled_steps.model_copy(update={"ranks": [rank.model_copy(update={"modules": rows})]})
    names = [name for name, *_ in all_of(step_span.step_span(changed, 100.0))]
    assert names == ["profiled step", "forward", "Large", "Layer", "idle"]


def _row(name, ms):
    return ModuleTime(
        phase="forward", path=(name,), recomputed=False, exclusive_ns=ms * 10**6, work_ns=0, gemm_ns=0, pieces=1
    )


def test_a_servers_steps_are_no_one_step(profiled_steps):
    [rank] = profiled_steps.ranks
    phase = rank.phases[0].model_copy(update={"phase": "decode"})
    served = profiled_steps.model_copy(update={"ranks": [rank.model_copy(update={"phases": [phase]})]})
    assert step_span.step_span(served, 100.0) is None
