"""Rates of a card by the microbenchmarks of an outputs folder, before those that are carried for its architecture."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmexp.record.predicted import Prediction
from llmexp.record.result import Metric, RunResult, to_json
from llmexp.training.predict.rates import CARRIED, FITTED
from tests.planning import make_plan

H100 = "NVIDIA H100 80GB HBM3"
LIMITS = {
    "gemm_bf16_flops_per_s": 700e12,
    "attention_flash_forward_flops_per_s": 500e12,
    "all_reduce_busbw_bytes_per_s": 300e9,
}
WORDS = ("model=7b", "precision=bf16_pure", "data.seq_len=2048", "method=F+Z3")
Write = Callable[..., None]
Predicted = Callable[..., Prediction]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def made(device: str = H100, ranks: int = 8, number: int = 1, **changed: float) -> None:
        known: dict[str, Any] = {"stack": "0", "engine": "micro", "hardware": "h100", "sweep": "main", "command": ""}
        result = RunResult(
            status="success",
            task="micro",
            id=f"{number:012}",
            processes=ranks,
            devices=ranks,
            environment={"device_name": device},
            metrics={name: Metric(mean=value) for name, value in (LIMITS | changed).items()},
            ended_at=f"2026-01-01T00:00:{number:02}+00:00",
            **known,
        )
        folder = tmp_path / "main" / f"micro_limits_{number:012}"
        folder.mkdir(parents=True)
        (folder / "result.json").write_text(to_json(result))

    return made


@pytest.fixture
def predicted(tmp_path: Path) -> Predicted:
    def made(*words: str, hardware: str = "h100") -> Prediction:
        found = make_plan(*WORDS, f"hardware={hardware}", f"sweep.outputs={tmp_path}", *words).predicted
        assert found is not None
        return found

    return made


def test_what_was_measured_here_comes_before_what_is_carried(write: Write, predicted: Predicted) -> None:
    carried = predicted()
    assert carried.source == CARRIED
    write()
    here = predicted()
    assert here.source == "microbenchmarks of this hardware (main/micro 000000000001)"
    assert here.rate != carried.rate
    write(number=2, gemm_bf16_flops_per_s=350e12)
    slower = predicted()
    assert "000000000002" in slower.source
    # Half the share of products, and as much of everything else.
    assert here.parts_s["forward"] < slower.parts_s["forward"] < 2 * here.parts_s["forward"]
    assert slower.parts_s["update"] == pytest.approx(here.parts_s["update"])


def test_links_count_where_as_many_ranks_measured_them(write: Write, predicted: Predicted) -> None:
    write(ranks=8, all_reduce_busbw_bytes_per_s=3e9)
    write(number=2, ranks=1, all_reduce_busbw_bytes_per_s=3e9)
    of_one = predicted()
    write(number=3, ranks=8, all_reduce_busbw_bytes_per_s=3e9)
    assert predicted().parts_s["communication"] > 5 * of_one.parts_s["communication"]


@pytest.mark.parametrize("device", ["NVIDIA A100-SXM4-80GB", ""])
def test_another_card_tells_nothing(device: str, write: Write, predicted: Predicted) -> None:
    write(device=device)
    assert predicted().source == CARRIED


def test_hardware_whose_runs_were_fitted_keeps_their_rates(write: Write, predicted: Predicted) -> None:
    write(device="NVIDIA A800-SXM4-80GB")
    assert predicted(hardware="a800").source == FITTED


def test_shares_stay_below_the_peak(write: Write, predicted: Predicted) -> None:
    write(gemm_bf16_flops_per_s=5e15)
    whole = predicted()
    write(number=2, gemm_bf16_flops_per_s=989.4e12)
    assert predicted().rate == pytest.approx(whole.rate)
