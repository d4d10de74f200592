"""Atoms L, QL and P: PEFT's adapters on a frozen model, in the dtype of its parameters."""

from __future__ import annotations

from peft import LoraConfig, PeftConfig, PeftModel, PromptTuningConfig, TaskType, get_peft_model
from transformers import PreTrainedModel

from llmexp.launchers.models.building import named_weights
from llmexp.launchers.models.seeding import fill
from llmexp.method import Adapter
from llmexp.training.plan.training_plan import TrainingPlan


def adapted(model: PreTrainedModel, kind: Adapter, plan: TrainingPlan) -> PeftModel:
    """Return the model with its own parameters frozen, and with an adapter in their dtype.

    The adapter is seeded, except on the meta device.
    """
    dtype = model.get_input_embeddings().weight.dtype
    wrapped = get_peft_model(model, _configuration(kind, plan), autocast_adapter_dtype=False)
    for name, parameter in named_weights(wrapped):
        if parameter.requires_grad:
            parameter.data = parameter.data.to(dtype)
            if not parameter.is_meta:
                fill(name, parameter.data, plan.config.seed)
    return wrapped.train()


def _configuration(kind: Adapter, plan: TrainingPlan) -> PeftConfig:
    chosen = plan.config.adapter
    if kind == "prompt":
        return PromptTuningConfig(task_type=TaskType.CAUSAL_LM, num_virtual_tokens=chosen.virtual_tokens)
    return LoraConfig(
        task_type=TaskType.CAUSAL_LM,
        r=chosen.rank,
        lora_alpha=chosen.alpha,
        lora_dropout=chosen.dropout,
        target_modules=list(chosen.targets),
    )
