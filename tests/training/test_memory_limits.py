"""What a rank keeps, and where: what does not go with a setting is a skip that says what would."""

from __future__ import annotations

import pytest
from planning import make_plan

from llmexp.launchers.deepspeed.engine import DeepSpeedEngine
from llmexp.registry import get_engine
from llmexp.training.memory_limits import activation_offload_limit
from llmexp.training.plan.training_plan import TrainingPlan

KEPT, FIRST, OFFLOAD = "memory.keep=products", "memory.recompute_layers=1", "memory.activation_offload=true"
FP8, LIGER = "precision=fp8", "kernels.liger=true"


def plan(*words: str) -> TrainingPlan:
    return make_plan("hardware=cpu", "parallelism.dp=2", *words)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([OFFLOAD, "engine=megatron"], "set engine=deepspeed or engine=torch"),
        ([OFFLOAD, "engine=deepspeed", "method=Z3"], "use Z2, or leave Z out"),
        ([OFFLOAD, "engine=torch", "method=Z2"], "use Z1, or leave Z out"),
        ([OFFLOAD, "engine=torch", "method=C"], "leave C out"),
        ([OFFLOAD, "engine=torch", "parallelism.pp=2", "batch.accumulation=2"], "set parallelism.pp=1"),
        ([OFFLOAD, "engine=deepspeed", "parallelism.cp=2"], "set parallelism.cp=1"),
        ([KEPT, "method=F"], "add F+R to the method"),
        ([KEPT, "method=R"], "add F+R to the method"),
        ([KEPT, "method=F+R", "engine=megatron"], "not those of engine=megatron: set engine=torch or engine=deepspeed"),
        ([KEPT, "method=F+R", "model=tiny-moe"], "architecture llama, qwen3 without biases, not model=tiny-moe"),
        ([KEPT, "method=F+R", "engine=torch", "parallelism.pp=2", "batch.accumulation=2"], "set parallelism.pp=1"),
        ([KEPT, "method=F+R+C", "engine=torch"], "leave C out"),
        ([KEPT, "method=F+R+Q"], "leave Q out"),
        ([KEPT, "method=F+R", FP8, "engine=torch"], "set precision=bf16"),
        ([KEPT, "method=F+R", "hardware=h100", "kernels.flash=fa2"], "is no operator of torch: leave it out"),
        ([KEPT, "method=F+R", "hardware=h100", LIGER], "leave kernels.liger out"),
        ([KEPT, "method=F+R", OFFLOAD], "memory.activation_offload or kernels.fused_accumulation: leave them out"),
        ([FIRST, "method=F"], "add R to the method"),
        ([FIRST, "method=RS"], "add R to the method"),
        (
            ["memory.recompute_layers=99", "method=R", "model=tiny"],
            "memory.recompute_layers=99: model=tiny has 4 layers",
        ),
        ([FIRST, "method=R", "engine=megatron", "parallelism.pp=2", "batch.accumulation=2"], "set parallelism.pp=1"),
        (
            ["memory.recompute_layers=3", "method=R", "engine=torch", "parallelism.pp=2", "batch.accumulation=2"],
            "each of 2 stages computes as many layers again: set a multiple of 2",
        ),
        ([FIRST, "method=R", OFFLOAD], "leave that out"),
    ],
)
def test_the_reason_says_what_would_do(words: list[str], reason: str) -> None:
    assert reason in str(plan(*words).skip)


@pytest.mark.parametrize(
    "words",
    [
        [OFFLOAD, "engine=deepspeed", "method=F+R+Z2+O"],
        [OFFLOAD, "engine=torch", "method=Z1"],
        [FIRST, "engine=deepspeed", "method=F+R+Z3"],
        [FIRST, "engine=megatron", "method=R"],
        [FIRST, "engine=torch", "method=C+R+Z3"],
    ],
)
def test_what_goes_with_it_is_planned(words: list[str]) -> None:
    assert plan(*words).skip is None


class StatesNothing(DeepSpeedEngine):
    name = "others"
    builds_transformers = grows_sequences = False
    offloads_activations_with = None


def test_an_engine_that_states_nothing_is_refused() -> None:
    made = plan(OFFLOAD)
    assert (
        activation_offload_limit(made.config, get_engine("pretrain", "deepspeed"), made.techniques, made.dims) is None
    )
    said = activation_offload_limit(made.config, StatesNothing(), made.techniques, made.dims)
    assert said == (
        "memory.activation_offload=true: engine=others keeps its activations itself: set engine=deepspeed or "
        "engine=torch"
    )
