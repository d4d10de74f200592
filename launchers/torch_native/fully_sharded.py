"""FSDP2 by torch's fully_shard.

Each decoder layer's parameters, gradients and optimizer states are partitioned over the ranks.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from accelerate import init_empty_weights
from torch import distributed, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Shard

from llmexp.errors import ConfigError
from llmexp.launchers.models import assembly, building
from llmexp.launchers.models.compiled import decoder_layers
from llmexp.launchers.models.weights import weights_of
from llmexp.launchers.torch_native.shared_experts import EXPERT, experts_of, losses_of, mesh_of_experts, share_experts
from llmexp.launchers.torch_native.tensor_parallel import REPLICA, TENSOR, cut_matrices, fill_parts
from llmexp.launchers.torch_native.wrapped import WrappedModel
from llmexp.launchers.training.optimizer_state import local
from llmexp.measure.dtypes import torch_dtype
from llmexp.training.plan.dims import ParallelDims
from llmexp.training.plan.training_plan import TrainingPlan

SHARD = "shard"


class FullySharded(WrappedModel):
    """A model whose layers are gathered when they compute, with the optimizer of this rank's part."""

    def __init__(self, plan: TrainingPlan, device: torch.device) -> None:
        super().__init__(plan)
        self._options = plan.engine_config
        self.offloads = "cpu_offload" in self._options
        with init_empty_weights(include_buffers=False):
            model = assembly.unseeded_model(plan, device)
            made = building.ExactBuffers(model)
            model.to(torch_dtype(plan.config.precision.master))
            made.restore(device)
        model.tie_weights()
        self.model_class = assembly.class_name(model)
        source = weights_of(plan.config)(model)
        self.module = assembly.with_atoms(model, plan)
        self._mesh = _mesh(plan.dims, device)
        if plan.dims.tp > 1:
            cut_matrices(building.transformer(self.module), self._mesh[TENSOR], along_sequence=plan.dims.sequence)
        if plan.dims.ep > 1:
            self._experts = mesh_of_experts(plan.dims, device, SHARD)
            share_experts(self.module, self._experts[EXPERT], losses_of(plan.dims))
        buffers = building.ExactBuffers(self.module)
        self._shard()
        self.module.to_empty(device="cpu" if self.offloads else device)
        buffers.restore(device)
        fill_parts(self.module, source, torch_dtype(plan.config.precision.parameters), device)
        assembly.compile_atom(self.module, assembly.method_of(plan), cut=plan.dims.tp > 1)
        self.model = self.module
        self.optimizer = assembly.optimizer(plan, assembly.trained_groups(plan, self.module))

    def begin_pass(self, *, last: bool) -> None:
        """Keep parameters that stay gathered after forward until the pass that completes a step.

        Gradients are partitioned in every pass.
        """
        if not self._options["fully_shard"]["reshard_after_forward"]:
            self.module.set_reshard_after_backward(last)

    @property
    def holders(self) -> distributed.ProcessGroup | None:
        """Return all ranks: those of a shard group hold different parts of every parameter."""
        return distributed.group.WORLD

    @property
    def reduced_in(self) -> torch.dtype:
        """The dtype of the reduce-scatter."""
        return torch_dtype(self._options["mixed_precision"]["reduce_dtype"])

    def _shard(self) -> None:
        layers = decoder_layers(self.module)
        if not layers:
            raise ConfigError(
                f"FSDP2 shards decoder layers, and {self.model_class} has no GradientCheckpointingLayer of transformers"
            )
        names = self._mesh.mesh_dim_names or ()
        data = tuple(name for name in names if name != TENSOR)
        options = unit_options(self._plan, self._mesh[data] if TENSOR in names else self._mesh)
        if self.offloads:
            options["offload_policy"] = CPUOffloadPolicy(**self._options["cpu_offload"])
        for layer in layers:
            if self._plan.dims.ep > 1:
                shard_experts(layer, self._experts[SHARD], options)
            fully_shard(layer, **options)
        # The rest is needed last in forward and first in backward, so it stays gathered in between.
        fully_shard(self.module, **{**options, "reshard_after_forward": False})


def shard_experts(layer: nn.Module, same: DeviceMesh, options: dict[str, Any]) -> None:
    """Partition a layer's experts over the ranks that hold the `same` ones; a token's weights keep their dtype."""
    policy = replace(options["mp_policy"], cast_forward_inputs=False)
    of_experts = {"mesh": same, "mp_policy": policy, "shard_placement_fn": partial(_evenly, same.size())}
    for experts in experts_of(layer):
        fully_shard(experts, **options | of_experts)


def unit_options(plan: TrainingPlan, ranks: DeviceMesh) -> dict[str, Any]:
    """Return the arguments of fully_shard for a unit that `ranks` partition."""
    options = plan.engine_config
    dtypes: dict[str, Any] = {name: torch_dtype(dtype) for name, dtype in options["mixed_precision"].items()}
    return {
        **options["fully_shard"],
        "mesh": ranks,
        "mp_policy": MixedPrecisionPolicy(**dtypes),
        "shard_placement_fn": partial(_evenly, plan.dims.sharers),
    }


def _mesh(dims: ParallelDims, device: torch.device) -> DeviceMesh:
    """Return the ranks by what they have in common, those that cut matrices nearest to each other."""
    sizes = {REPLICA: dims.same_parameters // dims.sharers, SHARD: dims.sharers, TENSOR: dims.tp}
    sizes = {name: size for name, size in sizes.items() if size > 1 or name == SHARD}
    return init_device_mesh(device.type, tuple(sizes.values()), mesh_dim_names=tuple(sizes))


def _evenly(ranks: int, parameter: nn.Parameter) -> Shard | None:
    """Partition a stack of experts' matrices by rows where the ranks cannot share the experts evenly.

    Otherwise some ranks would hold nothing of it.
    """
    held = local(parameter)
    if held.dim() < 3 or held.shape[0] % ranks == 0 or held.shape[1] % ranks:
        return None
    return Shard(1)
