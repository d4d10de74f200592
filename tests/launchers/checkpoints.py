"""Checkpoints as transformers itself writes them, and what its own models say of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from llmexp.launchers.data import loader
from llmexp.plan.training_plan import TrainingPlan

CPU = torch.device("cpu")
SIZES: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def write(folder: Path, config: Any = None, shard_size: str = "5GB", dtype: torch.dtype = torch.float32) -> Path:
    """A small model of random weights, not those that llmexp would seed."""
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_config(config or LlamaConfig(**SIZES), dtype=dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    model.save_pretrained(folder, max_shard_size=shard_size)
    return folder


def first_outputs(plan: TrainingPlan, model: Any) -> tuple[float, torch.Tensor]:
    """The mean loss of the first step's sequences of all replicas, and the logits of the first sequence.

    A model in one process computes them.
    """
    sequences = loader.load(plan.config.data, model.config.vocab_size, 2 * plan.batch.global_, plan.config.seed)
    with torch.no_grad():
        outputs = [
            model(input_ids=batch.input_ids, labels=batch.labels)
            for replica in range(plan.dims.dp)
            for batch in next(loader.batches(sequences, replica, plan.dims.dp, plan.batch, CPU))
        ]
    return sum(output.loss.item() for output in outputs) / len(outputs), outputs[0].logits
