"""Takes whole layers out: one at a time, that whose absence the calibration text notices least."""

from __future__ import annotations

import torch
from torch import nn
from transformers import PreTrainedModel

from llmexp.launchers.compress.loading import check_family, mean_nll
from llmexp.launchers.compress.pruning import kept_of


def drop_layers(model: PreTrainedModel, share: float, batches: list[torch.Tensor]) -> list[int]:
    """Take a share of the layers out; return their numbers in the original, in the order in which they went.

    Raises ConfigError where the family is another one, or where the share is none or all of the layers.
    """
    check_family(model, "layers")
    layers = list(model.model.layers)
    numbers = list(range(len(layers)))
    dropped = []
    for _ in range(len(layers) - kept_of(len(layers), share)):
        nlls = nlls_without_each(model, batches)
        least = min(range(len(nlls)), key=nlls.__getitem__)
        without_layer(model, least)
        dropped.append(numbers.pop(least))
    return dropped


@torch.no_grad()
def nlls_without_each(model: PreTrainedModel, batches: list[torch.Tensor]) -> list[float]:
    """Return the calibration text's nats a token without each of the layers; the model is as it was afterwards."""
    layers, kinds = list(model.model.layers), _kinds(model)
    found = []
    for index in range(len(layers)):
        without_layer(model, index)
        found.append(sum(float(mean_nll(model, batch)) * len(batch) for batch in batches) / sum(map(len, batches)))
        _set_layers(model, layers, kinds)
    return found


def without_layer(model: PreTrainedModel, index: int) -> None:
    """Take one layer out of a model and of its configuration."""
    layers, kinds = list(model.model.layers), _kinds(model)
    del layers[index]
    if kinds:
        del kinds[index]
    _set_layers(model, layers, kinds)


def _kinds(model: PreTrainedModel) -> list[str]:
    """Return the kinds of attention of the layers, where a family's configuration lists them."""
    return list(getattr(model.config, "layer_types", None) or [])


def _set_layers(model: PreTrainedModel, layers: list[nn.Module], kinds: list[str]) -> None:
    for index, layer in enumerate(layers):
        layer.self_attn.layer_idx = index  # type: ignore[union-attr]
    model.model.layers = nn.ModuleList(layers)
    model.config.num_hidden_layers = len(layers)
    if kinds:
        model.config.layer_types = kinds
