"""Constants are found again in runs that were made with them, and intervals hold what they should."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.prediction import judge as judge_module
from benchmarks.prediction.cells import Cell, own_cells, printed_cells
from benchmarks.prediction.fit import Runs, constants_to_fit, fitted, known_of, starts, without_platform
from benchmarks.prediction.judge import Judged
from benchmarks.prediction.suite import _ends, _ends_of_sources, _held_out, held_by_other_sources
from llmexp.training.predict.rates import constants as carried
from tests.planning import make_plan

METHODS = ("Naive", "F", "R", "Z2", "Z3", "Z2+O", "Z3+O", "Q")
A800 = ("hardware=a800", "precision=bf16_pure", "data.seq_len=350")
FITTED = ("products_share", "link_bytes_per_s", "host_s_per_parameter")


@pytest.fixture(scope="module")
def cells() -> list[Cell]:
    plans = [
        make_plan(f"method={method}", f"model={model}", f"batch.micro={batch}", *A800)
        for method in METHODS
        for model, batch in (("7b", 1), ("13b", 16))
    ]
    return [Cell("made up", plan, 1.0) for plan in plans]


def test_constants_are_found_again(cells) -> None:
    constants = [one for one in constants_to_fit() if one.rate in FITTED and "a800" in one.machines]
    true = starts(constants) + np.array([-0.1, 0.5, -0.7])
    ratios = np.exp(Runs(cells, constants).errors(true))
    made = [replace(cell, step_s=float(ratio)) for cell, ratio in zip(cells, ratios, strict=True)]
    found = fitted(Runs(made, constants), constants)
    assert found == pytest.approx(true, abs=0.05)
    known = known_of(constants, found)["hardware"]["a800"]
    assert known["link_bytes_per_s"] == pytest.approx(np.exp(true[1]), rel=0.05)


def test_one_wrong_cell_hardly_moves_them(cells) -> None:
    constants = [one for one in constants_to_fit() if one.rate in FITTED and "a800" in one.machines]
    true = starts(constants)
    ratios = np.exp(Runs(cells, constants).errors(true))
    ratios[0] *= 7
    made = [replace(cell, step_s=float(ratio)) for cell, ratio in zip(cells, ratios, strict=True)]
    assert fitted(Runs(made, constants), constants) == pytest.approx(true, abs=0.1)


def test_a_fit_does_not_depend_on_the_one_before(cells) -> None:
    known = deepcopy(carried())
    known["shared"] = {name: 2 * value for name, value in known["shared"].items()}
    known["hardware"]["a800"] = {name: 2 * value for name, value in known["hardware"]["a800"].items()}
    runs = [
        replace(cell, multiplies_fp32=True)
        for cell in (*cells, Cell("", make_plan("method=QL", "task=finetune", *A800), 1.0))
    ]
    constants = constants_to_fit()
    now, before = (Runs(runs, constants, other).errors(starts(constants)) for other in (None, known))
    assert now == pytest.approx(before)


def test_a_platform_that_nobody_measured_is_known_by_the_others() -> None:
    known = known_of([], np.zeros(0))
    left = without_platform(known, ["a800"])
    assert "a800" not in left["hardware"]
    assert left["typical"]["zero3_layer_s"] < known["typical"]["zero3_layer_s"]
    # Its host is the only one of a data center.
    assert known["switched"]["host_s_per_parameter"] < known["typical"]["host_s_per_parameter"]
    assert left["switched"] == {}
    assert left["typical"]["host_s_per_parameter"] == known["typical"]["host_s_per_parameter"]
    assert "a800" in known["hardware"]


def test_the_papers_4_bit_layers_multiply_in_fp32_without_f_and_zero() -> None:
    of_a800 = [cell for cell in printed_cells() if cell.hardware == "a800"]
    wide = {cell.method for cell in of_a800 if cell.multiplies_fp32}
    assert wide == {frozenset({"QL"}), frozenset({"QL", "R"})}
    cell = next(cell for cell in of_a800 if cell.multiplies_fp32)
    own, paper = replace(cell, multiplies_fp32=False).work, cell.work
    assert paper.products_flops == 2 * own.products_flops
    assert (own.cast_bytes, own.cast_bytes_behind) == (0, 0)
    assert paper.cast_bytes == paper.cast_bytes_behind == 8 * own.dequantized_parameters > 0


def test_what_is_judged_is_not_in_the_fit(cells, monkeypatch) -> None:
    seen = []

    def recorded(runs, constants, *begin):
        seen.append(runs.cells)
        return starts(constants)

    monkeypatch.setattr(judge_module, "printed_cells", lambda: cells)
    monkeypatch.setattr(judge_module, "own_cells", list)
    monkeypatch.setattr(judge_module, "others_cells", list)
    monkeypatch.setattr(judge_module, "fitted", recorded)
    judge = judge_module.Judge()
    del seen[:]
    judged = judge.method_left_out()
    assert len(judged.cells) == len(judged.errors) == len(cells)
    for fit_by, method in zip(seen, sorted({cell.method for cell in cells}, key=sorted), strict=True):
        assert fit_by
        assert method not in {cell.method for cell in fit_by}
    del seen[:]
    without = judge.platform_left_out(kept=False)
    assert len(without.cells) == len(cells)
    assert [{cell.hardware for cell in fit_by} for fit_by in seen] == [set(), {"a800"}, {"a800"}]


def test_the_fitted_card_is_predicted_by_the_papers_cells_alone(cells, monkeypatch) -> None:
    seen = []

    def recorded(runs, constants, *begin):
        seen.append(runs.cells)
        return starts(constants)

    own = Cell("made up", make_plan("method=F", "model=7b", "hardware=h200", "precision=bf16_pure"), 1.0)
    monkeypatch.setattr(judge_module, "printed_cells", lambda: cells)
    monkeypatch.setattr(judge_module, "own_cells", lambda: [own])
    monkeypatch.setattr(judge_module, "others_cells", list)
    monkeypatch.setattr(judge_module, "fitted", recorded)
    judge = judge_module.Judge()
    assert own in seen.pop()
    judged = judge.card_left_out()
    assert judged.cells == [own]
    assert len(judged.errors) == 1
    assert seen == [cells]


def test_this_projects_own_runs_are_planned_by_their_commands() -> None:
    found = own_cells()
    assert {cell.hardware for cell in found} == {"h100", "h200"}
    assert {cell.plan.config.optimizer.name for cell in found} == {"adamw", "adamw8bit"}
    assert {cell.plan.config.engine.name for cell in found} == {"torch", "deepspeed", "megatron"}
    assert {cell.plan.batch.accumulation for cell in found} > {1}


def test_nine_of_ten_new_runs_lie_in_the_interval() -> None:
    draws = np.random.default_rng(1)
    held = []
    for _ in range(300):
        errors = draws.normal(0.1, 0.3, 101)
        low, high = _ends(errors[1:])
        held.append(low <= np.exp(errors[0]) <= high)
    assert 0.86 < np.mean(held) < 0.95


def test_an_error_is_a_share_of_the_measured_step() -> None:
    judged = Judged("made up", [], np.log(np.array([1.1, 0.5])))
    assert judged.off == pytest.approx([0.1, 0.5])


def test_runs_that_took_longer_than_predicted_are_slower_than_the_prediction() -> None:
    low, high = _ends(np.log(np.full(200, 0.5)))
    assert (low, high) == (0.5, 0.5)


def of_sources(cells, errors: dict[str, list[float]]) -> Judged:
    made = [replace(cells[0], table=source) for source, of_source in errors.items() for _ in of_source]
    return Judged("made up", made, np.concatenate([np.log(of_source) for of_source in errors.values()]))


def test_a_source_counts_once_however_many_runs_it_has(cells) -> None:
    many = of_sources(cells, {"large": [1.0] * 990, "slow": [0.5] * 5, "fast": [2.0] * 5})
    assert _ends_of_sources(many) == [0.5, 2.0]
    assert many.by_source["slow"].off == pytest.approx([0.5] * 5)


def test_a_source_is_held_by_the_others_alone(cells) -> None:
    part = of_sources(cells, {"one": [0.9, 1.1], "two": [0.9, 1.1], "far": [3.0]})
    assert held_by_other_sources(part) == 4


def test_sources_that_others_do_not_hold_count_once_each(cells) -> None:
    alike, apart = {"one": [0.9, 1.0, 1.1], "two": [0.9, 1.0, 1.1]}, {"one": [0.5, 0.6], "two": [2.0, 2.1]}
    assert [_held_out(of_sources(cells, errors)) for errors in (alike, apart)] == [6, 2]
