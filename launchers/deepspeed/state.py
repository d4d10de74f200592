"""Finds the training state that DeepSpeed keeps, at every ZeRO stage; only this file knows its attributes (0.19)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from llmexp.launchers.training.optimizer_state import moments, not_of


def state_tensors(engine: Any, module: nn.Module) -> dict[str, list[torch.Tensor]]:
    """Return the tensors of this rank by kind.

    Call it between backward and step for the gradients, after step for the rest.
    """
    masters, held = _masters(engine), moments(engine.basic_optimizer)
    return {
        "parameters": [getattr(parameter, "ds_tensor", parameter.data) for parameter in module.parameters()],
        "gradients": _gradients(engine, [*module.parameters(), *masters]),
        "optimizer": [*not_of(module, masters), *held],
        "moments": held,
    }


def offloaded_kinds(engine: Any, module: nn.Module) -> frozenset[str]:
    """Return the kinds of state that lie on the host.

    They are found by ZeRO's buffers and settings, because on a CPU rank the tensors' device does not tell.
    """
    optimizer = engine.optimizer
    kinds = set()
    if getattr(optimizer, "cpu_offload", False) or getattr(optimizer, "offload_optimizer", False):
        kinds |= {"optimizer", "gradients"}
    buffers = {
        buffer.untyped_storage().data_ptr() for buffer in getattr(optimizer, "param_groups_fp16_flat_cpu_memory", [])
    }
    # Frozen parameters are in no buffer: their partitions are created where those of all parameters are.
    shards = [
        getattr(parameter, "ds_tensor", parameter) for parameter in module.parameters() if parameter.requires_grad
    ]
    if getattr(optimizer, "offload_param", False) and all(
        shard.untyped_storage().data_ptr() in buffers for shard in shards
    ):
        kinds.add("parameters")
    return frozenset(kinds)


def swap_buffers(engine: Any) -> list[torch.Tensor]:
    """Return the buffers through which optimizer states pass from and to files; empty where there are no files."""
    swapper = getattr(engine.optimizer, "optimizer_swapper", None)
    return list(swapper.swap_buffer_manager.all_buffers) if swapper else []


def _masters(engine: Any) -> list[torch.Tensor]:
    partitions = getattr(engine.optimizer, "fp32_partitioned_groups_flat", None)
    if partitions is not None:
        return list(partitions)
    return [parameter for group in engine.basic_optimizer.param_groups for parameter in group["params"]]


def _gradients(engine: Any, parameters: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    # From backward to step ZeRO keeps a rank's reduced share here, by parameter group.
    shares = getattr(engine.optimizer, "averaged_gradients", None) or {}
    reduced = [tensor for group in shares.values() if group is not None for tensor in group if tensor is not None]
    # ZeRO-3 allocates memory for its share at the start.
    room = getattr(engine.optimizer, "grad_partitions_flat_buffer", None)
    reduced += [] if room is None else [room]
    # Copies that are too small for a file wait for the update.
    swapper = getattr(engine.optimizer, "optimizer_swapper", None)
    swapped = swapper.swap_params_info.values() if swapper else ()
    reduced += [copy for group in swapped for copy in group.unswapped_gradients.values()]
    return reduced + [parameter.grad for parameter in parameters if parameter.grad is not None]
