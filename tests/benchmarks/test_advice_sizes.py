"""The table of layouts by size has one option of each engine, which fits and keeps the mathematics."""

from __future__ import annotations

from benchmarks.advice.searched import rate_of
from benchmarks.advice.sizes import SAMPLES, fastest_of
from llmexp.training.advice.mathematics import changes_of
from llmexp.training.plan.fit import fit_of


def test_each_engine_has_its_fastest_option() -> None:
    plans = fastest_of("7b", 8)
    rates = [rate_of(plan) for plan in plans]
    assert sorted(plan.config.engine.name for plan in plans) == ["deepspeed", "megatron", "torch"]
    assert rates == sorted(rates, reverse=True)
    for plan in plans:
        fit = fit_of(plan, plan.batch.micro)
        assert fit is not None
        assert fit.verdict != "no"
        assert (plan.batch.global_, plan.dims.world_size, list(changes_of(plan))) == (SAMPLES, 8, [])
