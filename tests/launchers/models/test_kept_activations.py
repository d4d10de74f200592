from __future__ import annotations

import pytest
import torch
from planning import make_plan
from torch.autograd.graph import saved_tensors_hooks

from llmexp.inputs.shape import shape_of
from llmexp.launchers.models import assembly
from llmexp.training.plan.activations import activations
from llmexp.training.plan.training_plan import TrainingPlan

pytestmark = [
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.gradient_checkpointing_enable:FutureWarning"),
]
CPU = torch.device("cpu")
# The formula leaves out positions, labels and rotary angles, which all layers share.
WITHIN = 0.01
WITHIN_ADAPTERS = 0.02


def bytes_kept(plan: TrainingPlan) -> int:
    """What autograd holds between forward and backward, parameters and buffers left out; a storage counts once."""
    model = assembly.with_atoms(assembly.seeded_model(plan, CPU), plan)
    held = {tensor.untyped_storage().data_ptr() for tensor in [*model.parameters(), *model.buffers()]}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if (place := tensor.untyped_storage().data_ptr()) not in held:
            kept[place] = tensor
        return tensor

    ids = torch.zeros((plan.batch.micro, plan.config.data.seq_len), dtype=torch.long)
    with saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = model(input_ids=ids, labels=ids).loss
    assert loss.requires_grad
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


def share_off(*words: str) -> float:
    """How much less the formula counts than there is, as a share of it."""
    plan = make_plan("hardware=cpu", "engine=torch", "parallelism.dp=1", "data.seq_len=350", *words)
    shape, found = shape_of(plan.config.model), bytes_kept(plan)
    assert shape is not None
    return 1 - activations(shape, plan.config, plan.techniques, plan.dims, plan.batch.micro).kept / found


@pytest.mark.parametrize("precision", ["bf16_pure", "fp32"])
@pytest.mark.parametrize("method", ["Naive", "F", "R", "RS", "F+R"])
def test_the_formula_is_what_transformers_keeps(method, precision):
    assert abs(share_off("model=tiny", f"method={method}", f"precision={precision}", "batch.micro=2")) < WITHIN


@pytest.mark.parametrize("precision", ["bf16_pure", "fp32"])
@pytest.mark.parametrize(
    "words",
    [
        *([f"method={method}"] for method in ("Naive", "F", "RS", "F+R")),
        *([f"method={method}", "model.architecture=qwen3"] for method in ("Naive", "F")),
        ["method=Naive", "model.num_kv_heads=4", "batch.micro=1"],
    ],
)
def test_projections_in_one_product_live_as_long_as_values_do(words, precision):
    fused = ["model=tiny", f"precision={precision}", "batch.micro=2", "kernels.fused_projections=true", *words]
    assert abs(share_off(*fused)) < WITHIN


@pytest.mark.parametrize("precision", ["bf16_pure", "fp32"])
@pytest.mark.parametrize("method", ["Naive", "F"])
def test_rounded_weights_are_kept_with_their_quotients(method, precision):
    rounding = ("precision.qat=int4", "model.intermediate_size=256")
    assert abs(share_off("model=tiny", f"method={method}", f"precision={precision}", *rounding)) < WITHIN


@pytest.mark.parametrize("method", ["L", "L+F", "L+R", "P"])
def test_it_is_for_adapters_too(method):
    words = ["model=tiny", "task=finetune", f"method={method}", "precision=bf16_pure"]
    assert abs(share_off(*words)) < WITHIN_ADAPTERS


@pytest.mark.parametrize("words", [["method=Q"], ["method=QL", "task=finetune"]])
def test_it_is_for_frozen_four_bit_weights_too(words):
    pytest.importorskip("bitsandbytes")
    assert abs(share_off("model=tiny", *words, "precision=bf16_pure")) < WITHIN_ADAPTERS


def test_it_is_for_experts_too():
    assert abs(share_off("model=tiny-moe", "method=Naive", "precision=bf16_pure")) < WITHIN
