"""Trains a pruned model on text: all of it, LoRA that is merged into it, or its norms alone."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from llmexp.compress.config import Prune
from llmexp.launchers.compress.loading import batches, mean_nll
from llmexp.launchers.compress.text import Tokens

SEQUENCES = 8
LORA_RANK = 8
LARGEST_GRADIENT_NORM = 1.0


def recover(model: Any, compress: Prune, read: Iterator[torch.Tensor]) -> Any:
    """Return the model, trained for recovery_steps of batches in fp32 and then in its own dtype again."""
    if compress.recovery == "none" or not compress.recovery_steps:
        return model
    dtype = model.dtype
    cast(model, torch.float32)
    trained = _opened(model, compress.recovery)
    parameters = [parameter for parameter in trained.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=compress.recovery_lr, weight_decay=0.0)
    for batch in itertools.islice(read, compress.recovery_steps):
        mean_nll(trained, batch).backward()
        nn.utils.clip_grad_norm_(parameters, LARGEST_GRADIENT_NORM)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    merged = trained.merge_and_unload() if compress.recovery == "lora" else trained
    cast(merged, dtype)
    return merged.eval()


def cast(model: nn.Module, dtype: torch.dtype) -> None:
    """Give all parameters another dtype; buffers, such as rotary frequencies, keep theirs."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)


def _opened(model: Any, kind: str) -> Any:
    """Return what trains, with gradients for the weights that `kind` names and for no others."""
    if kind == "lora":
        from peft import LoraConfig, TaskType, get_peft_model

        chosen = LoraConfig(task_type=TaskType.CAUSAL_LM, r=LORA_RANK, target_modules="all-linear")
        return get_peft_model(model, chosen)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(kind == "all" or "norm" in name)
    return model


def endless(sequences: list[Tokens], seed: int, device: torch.device, size: int = SEQUENCES) -> Iterator[torch.Tensor]:
    """Yield batches of the sequences, each time round in another order of the seed's."""
    order = random.Random(seed)
    while True:
        yield from batches(order.sample(sequences, len(sequences)), size, device)
