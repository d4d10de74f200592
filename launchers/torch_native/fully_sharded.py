"""FSDP2 by torch's fully_shard.

Each decoder layer's parameters, gradients and optimizer states are partitioned over the ranks.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from accelerate import init_empty_weights
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from transformers import PreTrainedConfig

from llmexp.errors import ConfigError
from llmexp.launchers.models import assembly, building
from llmexp.launchers.models.compiled import decoder_layers
from llmexp.launchers.models.weights import WeightSource, weights_of
from llmexp.measure.dtypes import torch_dtype
from llmexp.training.plan.training_plan import TrainingPlan


class FullySharded:
    """A model whose layers are gathered when they compute, with the optimizer of this rank's part."""

    def __init__(self, plan: TrainingPlan, device: torch.device) -> None:
        self._plan = plan
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
        buffers = building.ExactBuffers(self.module)
        self._shard(device)
        self.module.to_empty(device="cpu" if self.offloads else device)
        buffers.restore(device)
        self._fill(device, source)
        assembly.compile_atom(self.module, assembly.method_of(plan))
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
        """Return all ranks, each of which holds a part of every parameter."""
        return distributed.group.WORLD

    @property
    def config(self) -> PreTrainedConfig:
        """Return the whole model's configuration."""
        return self.module.config

    @property
    def wrapper_class(self) -> str:
        """The name of the class that fully_shard has made of the model's."""
        return assembly.class_name(self.model)

    @property
    def reduced_in(self) -> torch.dtype:
        """The dtype of the reduce-scatter."""
        return torch_dtype(self._options["mixed_precision"]["reduce_dtype"])

    def _shard(self, device: torch.device) -> None:
        layers = decoder_layers(self.module)
        if not layers:
            raise ConfigError(
                f"FSDP2 shards decoder layers, and {self.model_class} has no GradientCheckpointingLayer of transformers"
            )
        options: dict[str, Any] = {
            **self._options["fully_shard"],
            "mesh": init_device_mesh(device.type, (distributed.get_world_size(),)),
        }
        dtypes: dict[str, Any] = {name: torch_dtype(dtype) for name, dtype in self._options["mixed_precision"].items()}
        options["mp_policy"] = MixedPrecisionPolicy(**dtypes)
        options["shard_placement_fn"] = partial(_evenly, distributed.get_world_size())
        if self.offloads:
            options["offload_policy"] = CPUOffloadPolicy(**self._options["cpu_offload"])
        for layer in layers:
            fully_shard(layer, **options)
        # The rest is needed last in forward and first in backward, so it stays gathered in between.
        fully_shard(self.module, **{**options, "reshard_after_forward": False})

    def _fill(self, device: torch.device, source: WeightSource) -> None:
        dtype = torch_dtype(self._plan.config.precision.parameters)
        weights: Iterable[tuple[str, Any]] = building.named_weights(self.module)  # DTensors by now
        for name, parameter in weights:
            whole = torch.empty(parameter.shape, dtype=dtype, device=device)
            source(name, whole)
            everywhere = DTensor.from_local(whole, parameter.device_mesh, [Replicate()], run_check=False)
            parameter.to_local().detach().copy_(everywhere.redistribute(placements=parameter.placements).to_local())


def _evenly(ranks: int, parameter: nn.Parameter) -> Shard | None:
    """Partition a stack of experts' matrices by rows where the ranks cannot share the experts evenly.

    Otherwise some ranks would hold nothing of it.
    """
    if parameter.dim() < 3 or parameter.shape[0] % ranks == 0 or parameter.shape[1] % ranks:
        return None
    return Shard(1)
