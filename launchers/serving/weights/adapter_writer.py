"""Writes LoRA adapters for a model's shape in PEFT's format: random values of a seed, and no training."""

from __future__ import annotations

from pathlib import Path

import torch
from accelerate import init_empty_weights
from peft import LoraConfig, TaskType, get_peft_model
from torch import nn
from transformers import AutoModelForCausalLM

from llmexp.launchers.models.building import configuration
from llmexp.launchers.serving.weights.model_folder import FolderRequest
from llmexp.measure.dtypes import torch_dtype
from llmexp.serving.config.load import ServedAdapters

# The maps of attention, which dense models and mixtures have alike.
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj"]


def write_adapters(wanted: FolderRequest, adapters: ServedAdapters, folder: Path) -> None:
    """Write each adapter into a folder of its number; no two are equal."""
    # Both factors are drawn, as an adapter with PEFT's own second factor, zeros, computes what the model does.
    lora = LoraConfig(
        task_type=TaskType.CAUSAL_LM,
        r=adapters.rank,
        lora_alpha=adapters.rank,
        target_modules=TARGETS,
        init_lora_weights=False,
    )
    config = configuration(wanted.model)
    for number in range(adapters.number):
        with init_empty_weights():
            model = AutoModelForCausalLM.from_config(config, dtype=torch_dtype(wanted.dtype))
        adapted = get_peft_model(model, lora, autocast_adapter_dtype=False)
        _draw(adapted, torch.Generator().manual_seed(wanted.seed * 1_000_003 + number), torch_dtype(wanted.dtype))
        adapted.save_pretrained(folder / str(number))


def _draw(adapted: nn.Module, generator: torch.Generator, dtype: torch.dtype) -> None:
    """Give each factor values of the size of PEFT's first factor: evenly between plus and minus 1 / sqrt(inputs)."""
    for module in list(adapted.modules()):
        for name, parameter in list(module.named_parameters(recurse=False)):
            if parameter.requires_grad:
                bound = parameter.shape[1] ** -0.5
                drawn = torch.empty(parameter.shape).uniform_(-bound, bound, generator=generator)
                setattr(module, name, nn.Parameter(drawn.to(dtype)))
