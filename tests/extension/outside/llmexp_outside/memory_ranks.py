"""What the ranks do for it."""

from __future__ import annotations

from torch import nn

from llmexp.extend import Techniques


def freeze_lower_half(model: nn.Module, techniques: Techniques) -> None:
    layers = model.model.layers
    for part in (model.get_input_embeddings(), *layers[: len(layers) // 2]):
        part.requires_grad_(False)
