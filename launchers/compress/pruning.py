"""Takes channels of MLPs or whole groups of heads out, the same number in each layer, so that the model loads as any.

A unit is worth the sum of |weight x gradient| over its weights, averaged over batches: the first term of Taylor's
series of the loss (Molchanov et al., arXiv 1906.10771).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from llmexp.errors import ConfigError
from llmexp.launchers.compress.loading import check_family, mean_nll


@dataclass(frozen=True)
class LayerUnits:
    """The channels or groups of heads of one layer, and where they stand in its matrices.

    A place is a matrix, the dimension along which units stand, and the rows or columns of a unit.
    """

    count: int
    places: tuple[tuple[nn.Linear, int, int], ...]

    def worth(self) -> torch.Tensor:
        """Return the worth of each unit by the gradients that the matrices have now."""
        return torch.stack([self._worth_at(*place) for place in self.places]).sum(0)

    def _worth_at(self, matrix: nn.Linear, dim: int, width: int) -> torch.Tensor:
        assert matrix.weight.grad is not None
        product = (matrix.weight.detach() * matrix.weight.grad).abs().float()
        return product.sum(1 - dim).view(self.count, width).sum(1)

    @torch.no_grad()
    def keep(self, units: torch.Tensor) -> None:
        """Make the matrices smaller: of the units, only these stay, in their order."""
        for matrix, dim, width in self.places:
            index = (units.sort().values[:, None] * width + torch.arange(width, device=units.device)).flatten()
            matrix.weight = nn.Parameter(matrix.weight.index_select(dim, index).contiguous())
            if dim == 0 and matrix.bias is not None:
                matrix.bias = nn.Parameter(matrix.bias[index].contiguous())
            matrix.out_features, matrix.in_features = matrix.weight.shape


def prune(model: PreTrainedModel, method: str, share: float, batches: list[torch.Tensor]) -> None:
    """Take the least worthy share of channels (mlp) or groups of heads (heads) out of every layer and of config.

    Raises ConfigError where the family is another one, or where the share is none or all of the units.
    """
    check_family(model, method)
    layers = [_units(model, layer, method) for layer in model.model.layers]
    kept = kept_of(layers[0].count, share)
    if method == "heads":
        _check_heads(model, kept, share)
    worths = _worths(model, layers, batches)
    for units, worth in zip(layers, worths, strict=True):
        units.keep(worth.topk(kept).indices)
    _configure(model, method, kept)


def kept_of(count: int, share: float) -> int:
    """Return how many of `count` parts stay; raise ConfigError where all or none would."""
    dropped = round(count * share)
    if not 0 < dropped < count:
        raise ConfigError(f"compress.share={share:g} of {count} is {dropped}: it has to leave some and take some")
    return count - dropped


def _check_heads(model: PreTrainedModel, kept: int, share: float) -> None:
    """Raise ConfigError for a number of heads that the family's configuration does not take."""
    config, groups = model.config, model.config.num_key_value_heads
    if config.model_type != "llama":
        return
    each = config.num_attention_heads // groups
    choices = [count for count in range(1, groups) if config.hidden_size % (count * each) == 0]
    if kept not in choices:
        raise ConfigError(
            f"compress.share={share:g} leaves {kept * each} heads, which transformers' llama needs to divide "
            f"hidden_size={config.hidden_size}: take {_listed([f'{1 - count / groups:.3g}' for count in choices])}"
        )


def _listed(choices: list[str]) -> str:
    return " or ".join(choices) or "another method"


def _units(model: PreTrainedModel, layer: Any, method: str) -> LayerUnits:
    if method == "mlp":
        mlp = layer.mlp
        return LayerUnits(
            mlp.gate_proj.out_features, ((mlp.gate_proj, 0, 1), (mlp.up_proj, 0, 1), (mlp.down_proj, 1, 1))
        )
    attention, groups = layer.self_attn, model.config.num_key_value_heads
    keys = attention.k_proj.out_features // groups
    queries = attention.q_proj.out_features // groups
    places = ((attention.q_proj, 0, queries), (attention.k_proj, 0, keys), (attention.v_proj, 0, keys))
    return LayerUnits(groups, (*places, (attention.o_proj, 1, queries)))


def _worths(model: PreTrainedModel, layers: list[LayerUnits], batches: list[torch.Tensor]) -> list[torch.Tensor]:
    model.requires_grad_(False)
    for units in layers:
        for matrix, _, _ in units.places:
            matrix.weight.requires_grad_(True)
    sums = [torch.zeros(units.count, device=model.device) for units in layers]
    for batch in batches:
        mean_nll(model, batch).backward()
        for total, units in zip(sums, layers, strict=True):
            total += units.worth()
        model.zero_grad(set_to_none=True)
    return sums


def _configure(model: PreTrainedModel, method: str, kept: int) -> None:
    config = model.config
    if method == "mlp":
        config.intermediate_size = kept
        return
    config.head_dim = model.model.layers[0].self_attn.head_dim
    config.num_attention_heads = kept * (config.num_attention_heads // config.num_key_value_heads)
    config.num_key_value_heads = kept
