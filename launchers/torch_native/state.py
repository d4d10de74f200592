"""The state of a training rank in torch's own wrappers, in whichever order they run its passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import distributed, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from transformers import PreTrainedConfig

from llmexp.launchers.models import assembly
from llmexp.launchers.models.fused_projections import products_that_ran
from llmexp.launchers.models.quantize import quantized_tensors
from llmexp.launchers.torch_native.fully_sharded import SHARD
from llmexp.launchers.torch_native.replicated import MasterCopy
from llmexp.launchers.training.clipping import clip, gradients_of, kept_share, norm_of
from llmexp.launchers.training.loss_scaling import LossScale
from llmexp.launchers.training.optimizer_state import first_gradient_norm, local, moments, not_of
from llmexp.record.what_ran import WhatRan
from llmexp.training.plan.training_plan import TrainingPlan


class Layout(Protocol):
    """A rank's part of the model in the form that the rank holds it, with the optimizer of that part."""

    module: nn.Module
    model_class: str
    optimizer: torch.optim.Optimizer
    offloads: bool

    @property
    def holders(self) -> distributed.ProcessGroup | None:
        """The ranks that hold different parameters, or parts of them; None where each rank holds all."""

    @property
    def repeated(self) -> Sequence[nn.Parameter]:
        """The parameters here that another rank of `holders` has too, and counts."""

    @property
    def config(self) -> PreTrainedConfig:
        """The whole model's configuration."""

    @property
    def wrapper_class(self) -> str:
        """The name of the class that is called for a pass."""

    @property
    def reduced_in(self) -> torch.dtype:
        """The dtype in which ranks add up gradients."""


class TorchState:
    """A layout's state, with the interface of `Built`."""

    def __init__(self, plan: TrainingPlan, layout: Layout) -> None:
        self.layout = layout
        self._zero_stage = assembly.method_of(plan).techniques.zero_stage
        # Experts and all else are divided over other ranks, which a norm is made of together.
        self._among = plan.dims.same_parameters * plan.dims.tp if plan.dims.ep > 1 else None
        self._repeated = self._ids_of_repeated()
        self._clip_norm = plan.config.optimizer.clip_norm
        self._norm: torch.Tensor | None = None
        self.loss_scale = LossScale(plan.config.precision) if plan.config.precision.scales_loss else None
        self.module = layout.module
        self.vocab_size = int(layout.config.vocab_size)
        self.trainable_parameters = sum(parameter.numel() for parameter in assembly.trained(self.module))
        self.parameters = plan.parameters or sum(parameter.numel() for parameter in self.module.parameters())

    def state_tensors(self) -> dict[str, list[torch.Tensor]]:
        """Return, by kind, the tensors that hold training state now."""
        parameters, holder = list(self.module.parameters()), self._base_optimizer
        updated, held = [parameter for group in holder.param_groups for parameter in group["params"]], moments(holder)
        # While parameters are gathered, FSDP2 has the whole ones in the place of their parts.
        whole = [local(parameter) for parameter in parameters if not _is_shard(parameter)]
        gathers = any(isinstance(module, FSDPModule) for module in self.module.modules())
        return ({"gathered": whole} if gathers else {}) | {
            "parameters": [local(parameter) for parameter in parameters] + quantized_tensors(self.module),
            # The parts hold the gradients of earlier passes. While whole parameters take their place, only the
            # optimizer refers to them.
            "gradients": [local(parameter.grad) for parameter in (*parameters, *updated) if parameter.grad is not None],
            "optimizer": not_of(self.module, updated) + held,
            "moments": held,
        }

    def gradient_norm(self) -> float | None:
        """Return the norm of the first step's gradient; None where the optimizer does not tell it."""
        if self._norm is not None:
            return float(self._norm)
        return first_gradient_norm(self._base_optimizer, self.trainable_parameters, self._among, self._repeated)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return the groups with a learning rate; ZeroRedundancyOptimizer copies its own to those that it shares."""
        holders = (self._base_optimizer, self.layout.optimizer)
        return [group for holder in holders for group in holder.param_groups if "lr" in group]

    def norm_of_step(self) -> torch.Tensor | None:
        """Return the norm of the last step's gradient, which clipping and scaling compute; None without them."""
        return self._norm

    def scaled_step(self) -> tuple[float, bool] | None:
        """Return the factor of the last step's losses, and whether its update was skipped; None without a factor."""
        return self.loss_scale.last if self.loss_scale else None

    def update(self) -> None:
        """Unscale and clip the gradients where the plan says so, update the parameters and drop the gradients.

        Nothing is updated where scaled gradients overflow.
        """
        optimizer = self.layout.optimizer
        held = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        overflowed = False
        if self.loss_scale:
            overflowed = self._unscale(held, self.loss_scale)
        elif self._clip_norm is not None:
            self._norm = self._norm_of(held)
            clip(gradients_of(held), self._norm, self._clip_norm)
        if not overflowed:
            optimizer.step()
        optimizer.zero_grad()

    def _ids_of_repeated(self) -> frozenset[int]:
        """Return the ids of parameters that another rank counts, and of what the optimizer updates in their place."""
        repeated, wrapped = self.layout.repeated, self._wrapped_optimizer
        copies = wrapped.copies_of(repeated) if isinstance(wrapped, MasterCopy) else ()
        return frozenset(map(id, (*repeated, *copies)))

    def _norm_of(self, held: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the norm of the whole model's gradient."""
        counted = [parameter for parameter in held if id(parameter) not in self._repeated]
        return norm_of(gradients_of(counted), self.layout.holders, self._among)

    def _unscale(self, held: list[torch.Tensor], scale: LossScale) -> bool:
        """Undo the scale, and clip, in fp32; return True where gradients overflowed and are left."""
        gradients, factor = gradients_of(held), scale.factor
        scaled = self._norm_of(held)
        self._norm = scaled / factor
        if scale.overflows(scaled):
            return True
        kept = 1.0 if self._clip_norm is None else kept_share(self._norm, self._clip_norm)
        if isinstance(self._wrapped_optimizer, MasterCopy):
            self._wrapped_optimizer.share = kept / factor
        else:
            torch._foreach_mul_(list(map(local, gradients)), kept / factor)
        return False

    def offloaded(self) -> frozenset[str]:
        """Return the kinds of state that the layout keeps on the host."""
        return frozenset({"parameters", "gradients", "optimizer"} if self.layout.offloads else ())

    def what_ran(self) -> WhatRan:
        """Return the classes of model, wrapper and optimizer, the backend and how ranks add up gradients."""
        ran: WhatRan = {
            "attention_implementation": self.layout.config._attn_implementation,
            "model_class": self.layout.model_class,
            "wrapper_class": self.layout.wrapper_class,
            **self._updated_by(),
            "engine_optimizer_class": assembly.class_name(self.layout.optimizer),
            "backend": distributed.get_backend(),
            "reduced_in": str(self.layout.reduced_in),
            "zero_stage": self._zero_stage,
        }
        return ran | products_that_ran(self.module) | assembly.experts_that_ran(self.layout.config)

    def _updated_by(self) -> WhatRan:
        """Return what the rank's optimizer says, with Z1 for all ranks, each of which updates parameters of its own."""
        ran = assembly.updated_by(self._base_optimizer)
        if self._zero_stage == 1 and "optimizer_parameters" in ran:
            own = torch.tensor(list(ran["optimizer_parameters"].values()), device=next(self.module.parameters()).device)
            distributed.all_reduce(own)
            ran["optimizer_parameters"] = dict(zip(ran["optimizer_parameters"], own.tolist(), strict=True))
        return ran

    @property
    def _base_optimizer(self) -> torch.optim.Optimizer:
        """The optimizer that holds the moments: ZeroRedundancyOptimizer has it as `optim`, MasterCopy as `inner`."""
        return getattr(self._wrapped_optimizer, "inner", self._wrapped_optimizer)

    @property
    def _wrapped_optimizer(self) -> Any:
        return getattr(self.layout.optimizer, "optim", self.layout.optimizer)


def _is_shard(parameter: torch.Tensor) -> bool:
    """Tell whether FSDP2 has its part of a parameter in place, not all that it has gathered of it."""
    return isinstance(parameter, DTensor) and SHARD in (parameter.device_mesh.mesh_dim_names or ())
