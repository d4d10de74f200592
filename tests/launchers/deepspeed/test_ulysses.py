"""DeepSpeed's Ulysses on real gloo ranks is the training of one process on whole sequences.

This holds whichever the stage and the number of ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import sqrt
from pathlib import Path
from typing import Any

import pytest
from marks import slow
from planning import Measurement, make_plan

import llmexp
from llmexp.training.plan.training_plan import TrainingPlan

pytestmark = [pytest.mark.ranks, pytest.mark.long]

SHORT = "[" + ",".join(sorted(str(path) for path in Path(llmexp.__file__).parent.glob("[lmp]*/__init__.py"))) + "]"
PADDED = f"data.pack=false data.files={SHORT}"
SEQ_LEN, LAYERS = 64, 2
FLASH, UNFUSED = "aten::_scaled_dot_product_flash_attention_for_cpu", "aten::_softmax"
# Of losses near 6 over 4 steps, and of gradient norms near 5.
FP32_TOLERANCE = 1e-5
BF16_TOLERANCE = 2e-2

# Ranks, degrees and further words; all train on the same two sequences a step.
LAYOUTS: dict[str, tuple[int, str]] = {
    "cp 2, F+R": (2, "dp=1 cp=2 method=F+R"),
    "cp 2, padded": (2, f"dp=1 cp=2 {PADDED}"),
    "cp 2, F, Z1": (2, "dp=1 cp=2 method=F+Z1"),
    "cp 2, Z2": (2, "dp=1 cp=2 method=Z2"),
    "cp 2, F+R+Z3+O, 2 passes": (2, "dp=1 cp=2 method=F+R+Z3+O batch.micro=1 batch.accumulation=2"),
    "cp 2, RS": (2, "dp=1 cp=2 method=RS"),
    "cp 2, Z3, padded, chunked": (2, f"dp=1 cp=2 method=Z3 {PADDED} kernels.chunked_loss=true"),
    "cp 2, experts": (2, "dp=1 cp=2 method=F model=tiny-moe"),
    "cp 2, bf16_mixed": (2, "dp=1 cp=2 precision=bf16_mixed"),
    "cp 2, F, Z2, bf16_mixed": (2, "dp=1 cp=2 method=F+Z2 precision=bf16_mixed"),
    "dp 2, cp 2": (4, "dp=2 cp=2 batch.micro=1"),
    "dp 2, cp 2, F+Z3": (4, "dp=2 cp=2 batch.micro=1 method=F+Z3"),
}
# Key and value heads are fewer than the ranks.
FOUR_RANKS_A_SEQUENCE = {"cp 4, F": (4, "dp=1 cp=4 method=F")}
ALL = LAYOUTS | FOUR_RANKS_A_SEQUENCE
QUICK = {"cp 2, F+R", "cp 2, padded", "cp 2, RS"}
EVERY = [name if name in QUICK else slow(name) for name in ALL]
FP32 = [each for each, name in zip(EVERY, ALL, strict=True) if "bf16" not in name]
ONE_PROCESS = {
    "whole": (1, "dp=1 engine=torch"),
    "padded": (1, f"dp=1 engine=torch {PADDED}"),
    "experts": (1, "dp=1 engine=torch model=tiny-moe"),
}


@cache
def plan(words: str) -> TrainingPlan:
    given = [f"parallelism.{word}" if word[:3] in ("dp=", "cp=") else word for word in words.split()]
    defaults = ("engine=deepspeed", "precision=fp32", "batch.micro=2", f"data.seq_len={SEQ_LEN}", "model.num_layers=2")
    common = [word for word in defaults if not any(other.startswith(word.split("=")[0] + "=") for other in given)]
    return make_plan("hardware=cpu", *common, *given)


@pytest.fixture(scope="module")
def observed(observe: Callable[..., Measurement], asked: set[str]) -> Measurement:
    """DeepSpeed makes its groups once in a process, so that each degree of cp has processes of its own."""
    found: Measurement = {}
    for layouts in (ONE_PROCESS, LAYOUTS, FOUR_RANKS_A_SEQUENCE):
        for ranks in sorted({needs for needs, _ in layouts.values()}):
            plans = {
                name: plan(words)
                for name, (needs, words) in layouts.items()
                if needs == ranks and name in asked.union(QUICK, ONE_PROCESS)
            }
            found |= observe(plans, ranks) if plans else {}
    return found


def one_process(observed: Measurement, name: str) -> dict[str, Any]:
    return observed[next((kind for kind in ("padded", "experts") if kind in name), "whole")][0]


@pytest.mark.parametrize("name", FP32)
def test_losses_are_those_of_one_process(observed: Measurement, name: str) -> None:
    losses = one_process(observed, name)["losses"]
    assert losses[-1] < losses[0] - 0.2
    for rank in observed[name]:
        assert rank["losses"] == pytest.approx(losses, abs=FP32_TOLERANCE)


@pytest.mark.parametrize("name", FP32)
def test_gradients_are_summed_over_a_sequence_and_averaged_over_replicas(observed: Measurement, name: str) -> None:
    """Adam would hide a wrong factor from the losses."""
    norm = sqrt(one_process(observed, name)["gradient_squares"])
    assert [rank["gradient_norm"] for rank in observed[name]] == pytest.approx([norm] * len(observed[name]), rel=1e-4)


@pytest.mark.parametrize("name", [slow(name) for name in ALL if "bf16" in name])
def test_bf16_follows_the_curve_of_fp32(observed: Measurement, name: str) -> None:
    assert observed[name][0]["losses"] == pytest.approx(one_process(observed, name)["losses"], abs=BF16_TOLERANCE)


@pytest.mark.slow
def test_what_gradients_are_reduced_in_is_said(observed: Measurement) -> None:
    """DeepSpeed's stages 1 and 2 reduce in fp32 where sequences are cut."""
    reduced = {
        name: observed[name][0]["what_ran"]["reduced_in"] for name in ("cp 2, bf16_mixed", "cp 2, F, Z2, bf16_mixed")
    }
    assert reduced == {"cp 2, bf16_mixed": "torch.bfloat16", "cp 2, F, Z2, bf16_mixed": "torch.float32"}


@pytest.mark.parametrize("name", EVERY)
def test_a_rank_computes_with_its_share_of_a_sequence_by_the_kernel_of_its_method(
    observed: Measurement, name: str
) -> None:
    chosen = plan(ALL[name][1])
    flash, passes = (
        "F" in chosen.method.split("+"),
        chosen.batch.accumulation * (2 if "R" in chosen.method.split("+") else 1),
    )
    for rank in observed[name]:
        assert rank["positions"] == [SEQ_LEN // chosen.dims.cp]
        assert rank["layer_calls"] == passes * LAYERS
        assert rank["attention_kernel"] == (FLASH if flash else UNFUSED)
        # A router has a softmax of its own.
        assert "moe" in ALL[name][1] or (UNFUSED in rank["operators"]) != flash


@pytest.mark.parametrize("name", EVERY)
def test_ranks_hold_what_is_predicted(observed: Measurement, name: str) -> None:
    predicted = plan(ALL[name][1]).memory
    assert predicted is not None
    for kind in ("parameters", "optimizer"):
        state, expected = observed[name][0]["state"][kind], getattr(predicted, kind)
        assert state["device"] + state["host"] == pytest.approx(expected.device + expected.host, rel=0.05), kind


def test_rs_runs_attention_again_in_backward(observed: Measurement) -> None:
    for rank in observed["cp 2, RS"]:
        assert rank["operators"][UNFUSED] == 2 * LAYERS
