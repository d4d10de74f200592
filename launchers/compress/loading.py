"""Models from folders: the original, which has to be of a family whose parts are known where parts are taken out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from llmexp.errors import ConfigError
from llmexp.launchers.models.hub import folder_of
from llmexp.schema.model import HfModel

# Families whose layers have q_proj, k_proj, v_proj, o_proj and gate_proj, up_proj, down_proj.
FAMILIES = ("llama", "mistral", "qwen2", "qwen3")


def source_of(model: HfModel) -> Path:
    """Return the folder of the trained model; raise ConfigError where the weights would be random."""
    if model.checkpoint is None:
        raise ConfigError("model.weights=random: task=compress needs a trained model, set model.weights=pretrained")
    return folder_of(model.path, code=model.trust_remote_code)


def original(model: HfModel, device: torch.device) -> PreTrainedModel:
    """Load the trained model as it was saved, to read and not to train."""
    loaded = AutoModelForCausalLM.from_pretrained(
        source_of(model), dtype="auto", trust_remote_code=model.trust_remote_code
    )
    return loaded.to(device).eval()


def check_family(model: PreTrainedModel, method: str) -> None:
    """Raise ConfigError for a model whose layers are built in another way."""
    if model.config.model_type not in FAMILIES:
        raise ConfigError(
            f"compress.method={method} takes parts out of {', '.join(FAMILIES)}, not of {model.config.model_type}"
        )


def matrices_of(model: Any, *, experts_alone: bool = False) -> dict[str, torch.Tensor]:
    """Return the matrices that are compressed, by name: all of the layers, without the one that names tokens.

    They are the model's own memory. An expert's are cut out of the stack that holds all experts of a layer.
    """
    head = model.get_output_embeddings()
    found: dict[str, torch.Tensor] = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and module is not head and not experts_alone:
            found[name] = module.weight.detach()
        elif type(module).__name__.endswith("Experts"):
            found |= {f"{name}.{part}": matrix for part, matrix in _of_experts(module)}
    return found


def _of_experts(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the matrices of each expert by their names in a checkpoint; gate and up stand one above the other."""
    for name, stack in module.named_parameters(recurse=False):
        parts = ("gate_proj", "up_proj") if name == "gate_up_proj" else (name,)
        for number, expert in enumerate(stack.detach()):
            for part, matrix in zip(parts, expert.chunk(len(parts)), strict=True):
                yield f"{number}.{part}", matrix


def batches(sequences: list[list[int]], size: int, device: torch.device) -> list[torch.Tensor]:
    """Return sequences of one length as tensors of `size` sequences, the last perhaps fewer."""
    return [torch.tensor(sequences[at : at + size], device=device) for at in range(0, len(sequences), size)]


def mean_nll(model: Any, tokens: torch.Tensor) -> torch.Tensor:
    """Return the mean of nats over the predicted tokens of a batch, with its graph where gradients are on."""
    logits = model(input_ids=tokens, use_cache=False).logits[:, :-1].float()
    return nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
