"""Atom R, for all layers or the first ones: what they compute again leaves out the operators whose results are kept.

torch's selective checkpoint asks a policy for each operator of a layer, beneath autograd.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    SelectiveCheckpointContext,
    create_selective_checkpoint_contexts,
)
from transformers import PreTrainedModel

from llmexp.launchers.models.compiled import decoder_layers
from llmexp.record.what_ran import WhatRan
from llmexp.training.config.run import Keep, MemoryConfig

_ATTENTION = {
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_cudnn_attention.default,
}
_PRODUCTS = {torch.ops.aten.mm.default, torch.ops.aten.addmm.default}
_KEPT: dict[Keep, set[Any]] = {"attention": _ATTENTION, "products": _ATTENTION | _PRODUCTS}


@dataclass
class Keeping:
    """The operators whose results are kept, and how many of them a layer has kept."""

    operators: set[Any]
    results: int = 0

    def contexts(self) -> Any:
        """Return the contexts of a layer's forward, and of the one that backward begins with."""
        self.results = 0
        return create_selective_checkpoint_contexts(self._policy)

    def _policy(self, where: SelectiveCheckpointContext, operator: Any, *_: Any, **__: Any) -> CheckpointPolicy:
        if operator not in self.operators:
            return CheckpointPolicy.PREFER_RECOMPUTE
        self.results += not where.is_recompute
        return CheckpointPolicy.MUST_SAVE


def recompute(model: PreTrainedModel, memory: MemoryConfig, stages: int) -> None:
    """Let backward compute the model's layers again, or the first ones, but for the results that they keep.

    The model may be one of several `stages`, which share out the number of these layers evenly.
    """
    chosen: dict[str, Any] = {"use_reentrant": False}
    if memory.keep:
        made = Keeping(_KEPT[memory.keep])
        model.kept_results = made  # what_ran says what was kept
        chosen["context_fn"] = made.contexts
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=chosen)
    layers = decoder_layers(model)
    for layer in layers[memory.recompute_layers // stages if memory.recompute_layers else len(layers) :]:
        layer.gradient_checkpointing = False


def results_that_were_kept(module: nn.Module) -> WhatRan:
    """Say, for what_ran, how many results the last layer that ran has kept, where any were to be."""
    found = (getattr(each, "kept_results", None) for each in module.modules())
    made = next((each for each in found if isinstance(each, Keeping)), None)
    return {"kept_results": made.results} if made else {}
