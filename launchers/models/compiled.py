"""Atom C: torch.compile on each decoder layer and on the loss, the regions between an engine's own hooks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from llmexp.errors import ConfigError


def compile_regions(model: PreTrainedModel, *, cut: bool = False) -> None:
    """Compile for fixed shapes, at the first call; with `cut`, matrices and logits are DTensors.

    Layers of one class share one graph. An engine's hooks on a layer stay outside, and checkpoints of it inside unless
    it is cut. Raises ConfigError for a model without decoder layers of transformers' kind.
    """
    from torch._inductor import config as inductor  # one second of every rank's start, and only C needs it

    # With this the profiler sees the kernels generated for a CPU, as it sees every operator and every GPU kernel.
    inductor.cpp.enable_kernel_profile = True
    layers = decoder_layers(model)
    if not layers:
        raise ConfigError(
            f"C compiles decoder layers, and {type(model).__name__} has no GradientCheckpointingLayer of transformers"
        )
    for layer in layers:
        checkpointed = cut and layer.gradient_checkpointing
        if checkpointed:  # compiled by torch 2.13, a checkpoint of DTensors would save their mesh among the tensors
            layer.gradient_checkpointing = False
        compiled = torch.compile(layer.forward, dynamic=False)
        layer.forward = partial(_again_in_backward, layer, compiled) if checkpointed else compiled
    if not cut:  # compiled by torch 2.13, the collectives of loss_parallel give 0, or twice the loss
        model.loss_function = torch.compile(model.loss_function, dynamic=False)


def _again_in_backward(layer: Any, forward: Callable[..., Any], *inputs: Any, **options: Any) -> Any:
    return layer._gradient_checkpointing_func(partial(forward, **options), *inputs)


def decoder_layers(model: PreTrainedModel) -> list[GradientCheckpointingLayer]:
    """Return the layers that transformers checkpoints one by one."""
    return [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
