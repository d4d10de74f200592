"""The judgement of steps on a processor: the fit finds constants that made-up runs have, and leaves methods out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from benchmarks.prediction.calibrated import write_intervals
from benchmarks.prediction.on_cpu import STARTS, Truth, fitted, held_out
from llmexp.training.predict.cpu_rates import Collective, CpuRates
from llmexp.training.predict.cpu_step import cpu_step
from tests.planning import make_plan

RATES = CpuRates(
    run="",
    call_s=6e-7,
    flop_s=5e-12,
    element_s=7e-10,
    logit_s=7e-10,
    scores_s={"unfused_forward": 3e-9, "unfused_backward": 8e-9, "flash_forward": 2e-9, "flash_backward": 6e-9},
    updated_s=6e-10,
    collectives=dict.fromkeys(("all_reduce", "all_gather", "reduce_scatter"), Collective(2e-4, 1e-9)),
)
TRUTH = replace(STARTS, elementwise=20.0, layer_calls=1200.0, recomputing=2.2)


def truths(methods: Sequence[str]) -> list[Truth]:
    found = []
    for method in methods:
        for batch in (1, 8):
            words = ("hardware=cpu", "hardware.devices_per_node=1", f"method={method}", f"batch.micro={batch}")
            plan = make_plan("model=tiny", "precision=bf16_mixed", *words)
            found.append(Truth(plan, RATES, (cpu_step(plan, RATES, TRUTH, {}).whole,)))
    return found


def test_a_fit_finds_the_constants_of_made_up_runs() -> None:
    runs = truths(("Naive", "F", "R", "F+R"))
    known = fitted(runs)
    assert max(abs(run.error(known)) for run in runs) < 0.02 < max(abs(run.error(STARTS)) for run in runs)
    assert known.recomputing == pytest.approx(TRUTH.recomputing, rel=0.1)


def test_what_no_run_tells_stays_at_its_start() -> None:
    assert fitted(truths(("Naive",))).gathers == pytest.approx(STARTS.gathers)


def test_a_left_out_method_is_predicted_without_its_runs() -> None:
    judged = held_out(truths(("Naive", "F", "R")))
    assert [run.method for run, _ in judged] == ["Naive"] * 2 + ["F"] * 2 + ["R"] * 2
    # Nothing else tells how long R's forward takes again.
    assert abs(judged[-1][1]) > 0.05
    assert abs(judged[0][1]) < 0.02


def test_each_benchmark_keeps_the_intervals_of_the_other(tmp_path: Path) -> None:
    path = tmp_path / "intervals.yaml"
    path.write_text("cpu: [0.9, 1.1, 20]\nother: [0.5, 2.0, 9]\n")
    write_intervals({"other": [0.6, 1.8, 10]}, path)
    assert yaml.safe_load(path.read_text()) == {"cpu": [0.9, 1.1, 20], "other": [0.6, 1.8, 10]}
