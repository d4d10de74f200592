"""The FLOPs that HFU counts are those that torch counts in a step of every engine, on real ranks."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from marks import slow
from planning import Measurement, make_plan

from llmexp.training.plan.training_plan import TrainingPlan

pytestmark = pytest.mark.ranks

# Engine, ranks and words; attention in products of its own unless F is in the method.
RUNS: dict[str, tuple[str, int, str]] = {
    **{
        f"{engine} {method}": (
            engine,
            1,
            f"method={method}" + " task=finetune data=synthetic" * any(code in method for code in "LP"),
        )
        for engine, methods in {
            "torch": (
                "Naive",
                "F",
                "R",
                "F+R",
                "R+Z3",
                "RS",
                "L",
                "L+RS",
                "L+Z3",
                "L+R",
                "QL",
                "QL+R",
                "QL+F+R",
                "P+R",
                "P+F",
                "Q+R",
            ),
            "deepspeed": ("R", "R+Z3", "RS+Z3", "L+R", "QL+R", "L+Z3", "QL+R+Z3"),
            "megatron": ("Naive", "R", "F+R", "RS"),
        }.items()
        for method in methods
    },
    "narrow adapters": (
        "torch",
        1,
        "method=L task=finetune data=synthetic adapter.targets=[q_proj,up_proj] adapter.rank=8",
    ),
    "narrow adapters, R": (
        "torch",
        1,
        "method=L+R task=finetune data=synthetic adapter.targets=[q_proj,up_proj] adapter.rank=8",
    ),
    "output adapters": (
        "torch",
        1,
        "method=QL task=finetune data=synthetic adapter.targets=[o_proj,down_proj] adapter.rank=8",
    ),
    "output adapters, F": (
        "torch",
        1,
        "method=L+F task=finetune data=synthetic adapter.targets=[o_proj,down_proj] adapter.rank=8",
    ),
    "experts, R": ("torch", 1, "method=R model=tiny-moe"),
    "experts, L": (
        "torch",
        1,
        "method=L task=finetune data=synthetic model=tiny-moe adapter.targets=[q_proj,k_proj,v_proj,o_proj]",
    ),
    "qwen3, R": ("torch", 1, "method=R model.architecture=qwen3"),
    "packed": ("torch", 1, "task=finetune data=instructions data.pack=true method=R data.seq_len=1024"),
    "packed, F": ("torch", 1, "task=finetune data=instructions data.pack=true method=F data.seq_len=1024"),
    "padded, F+R": ("torch", 1, "task=finetune data=instructions method=F+R data.seq_len=1024 data.pack=false"),
    "attention kept": ("torch", 1, "method=F+R memory.keep=attention"),
    "products kept": ("torch", 1, "method=F+R memory.keep=products"),
    "products kept, L": ("torch", 1, "task=finetune data=synthetic method=L+F+R memory.keep=products"),
    "products kept, Z3": ("deepspeed", 1, "method=F+R+Z3 memory.keep=products"),
    "one layer, R": ("torch", 1, "method=R memory.recompute_layers=1"),
    "one layer, F+R": ("torch", 1, "method=F+R memory.recompute_layers=1"),
    "one layer, L+R": ("torch", 1, "task=finetune data=synthetic method=L+R memory.recompute_layers=1"),
    "one layer, products kept": ("torch", 1, "method=F+R memory.keep=attention memory.recompute_layers=1"),
    "one layer, Z3": ("deepspeed", 1, "method=F+R+Z3 memory.recompute_layers=1"),
    "two layers of two stages": (
        "torch",
        2,
        "method=R memory.recompute_layers=2 model.num_layers=4 parallelism.dp=1 parallelism.pp=2 batch.accumulation=2",
    ),
    "projections in one, Z3": ("deepspeed", 1, "method=F+R+Z3 kernels.fused_projections=true"),
    "one layer of Megatron": ("megatron", 1, "method=R memory.recompute_layers=1"),
    "experts of Megatron, R": ("megatron", 1, "method=R model=tiny-moe"),
    "ring of torch": ("torch", 2, "method=Naive parallelism.cp=2"),
    "ring of torch, R": ("torch", 2, "method=R parallelism.cp=2"),
    "ulysses of torch, RS": ("torch", 2, "method=RS parallelism.cp=2 parallelism.cp_kind=ulysses"),
    "ring": ("megatron", 2, "method=Naive parallelism.cp=2"),
    "ring, R": ("megatron", 2, "method=R parallelism.cp=2"),
    "ring, RS": ("megatron", 2, "method=RS parallelism.cp=2"),
    "ulysses, RS": ("deepspeed", 2, "method=RS parallelism.cp=2"),
    "tp 2": ("megatron", 2, "method=R parallelism.tp=2"),
}


# Each kind of product once.
QUICK = {
    *("torch Naive", "torch F+R", "torch RS", "torch L+R", "torch QL", "torch P+R", "deepspeed R+Z3", "megatron F+R"),
    *("output adapters", "experts, R", "packed, F", "padded, F+R", "ring, R", "tp 2"),
    *("attention kept", "products kept, Z3", "one layer, F+R", "one layer of Megatron"),
}


BOUNDED = ("packed, F", "padded, F+R")


@cache
def plan(name: str) -> TrainingPlan:
    engine, _, words = RUNS[name]
    given = [] if "seq_len" in words else ["data.seq_len=64"]
    return make_plan(
        "hardware=cpu",
        "precision=fp32",
        "model.num_layers=2",
        "batch.micro=2",
        "parallelism.dp=1",
        f"engine={engine}",
        *given,
        *words.split(),
    )


@pytest.fixture(scope="module")
def observed(observe: Callable[..., Measurement], asked: set[str]) -> Measurement:
    kinds = dict.fromkeys((engine, ranks) for engine, ranks, _ in RUNS.values())
    # Of DeepSpeed's plans those of Z3 come last: it replaces torch's linear function for all that follow.
    names = sorted(asked.union(BOUNDED) & {*RUNS}, key=lambda name: ("Z3" in name, name))
    found: Measurement = {}
    for kind in kinds:
        plans = {name: plan(name) for name in names if RUNS[name][:2] == kind}
        found |= observe(plans, kind[1], "flops_worker") if plans else {}
    return found


@pytest.mark.parametrize("name", [name if name in QUICK else slow(name) for name in RUNS])
def test_the_devices_flops_of_a_plan_are_those_that_torch_counts(observed: Measurement, name: str) -> None:
    flops, first = plan(name).flops, observed[name][0]
    assert flops is not None
    assert flops.computed is not None
    # torch's counter takes no notice of what causal kernels leave out, which is half.
    squares = 2 * first["bounded_squares"] if flops.computed.fused else first["positions"] * flops.seq_len
    expected = first["positions"] * flops.computed.per_position + squares * flops.computed.per_square()
    # transformers computes the rotary frequencies by a product, too.
    assert sum(rank["flops"] for rank in observed[name]) == pytest.approx(expected, rel=1e-4)


def test_packed_records_bound_the_fused_kernel_alone(observed: Measurement) -> None:
    packed, padded = (observed[name][0] for name in BOUNDED)
    assert packed["bounded_squares"] < 0.7 * packed["positions"] * 1024
    assert padded["bounded_squares"] == padded["positions"] * 1024
