"""Replicas in torch: the whole model on every rank, with gradients averaged by DDP.

With Z1 the optimizer's states are divided over the ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from llmexp.launchers.models import assembly
from llmexp.launchers.models.accumulating import FusedAccumulation
from llmexp.launchers.torch_native.partitioned import PartitionedOptimizer
from llmexp.launchers.torch_native.wrapped import WrappedModel
from llmexp.launchers.training.optimizer_state import local
from llmexp.measure.dtypes import torch_dtype
from llmexp.record.what_ran import WhatRan
from llmexp.training.plan.training_plan import TrainingPlan


class Replicated(WrappedModel):
    """A model, in DDP where there are several ranks, and its optimizer."""

    def __init__(self, plan: TrainingPlan, device: torch.device) -> None:
        super().__init__(plan)
        model = assembly.seeded_model(plan, device)
        self.model_class = assembly.class_name(model)
        self.module = assembly.with_atoms(model, plan)
        self._accumulation = FusedAccumulation(self.module) if plan.config.kernels.fused_accumulation else None
        assembly.compile_atom(self.module, assembly.method_of(plan))
        self.model = self._wrapped(device)
        if plan.config.optimizer.fused_backward and plan.dims.dp > 1:
            _average_in_backward(assembly.trained(self.module))
        self.optimizer = optimizer(plan, assembly.trained_groups(plan, self.module))
        if self._accumulation:
            self.optimizer.register_step_pre_hook(self._accumulation.end_step)

    def begin_pass(self, *, last: bool) -> None:
        """Keep gradients on their rank until the pass that completes a step."""
        if self._accumulation:
            self._accumulation.begin_pass()
        if isinstance(self.model, DistributedDataParallel):
            self.model.require_backward_grad_sync = last

    @property
    def accumulated(self) -> WhatRan:
        """Say, for what_ran, how many products the last step added to gradients in place, where any were asked for."""
        return {"accumulated_products": self._accumulation.products} if self._accumulation else {}

    @property
    def holders(self) -> None:
        """Return None: each rank holds all parameters and their averaged gradients."""
        return None

    def _wrapped(self, device: torch.device) -> nn.Module:
        options = self._plan.engine_config.get("distributed_data_parallel")
        if options is None:
            return self.module
        # Layers are compiled one by one, so that there is no graph to cut at the buckets' bounds.
        torch._dynamo.config.optimize_ddp = False
        # Weights are seeded alike on all ranks, so that nothing has to be sent.
        return DistributedDataParallel(
            self.module, device_ids=[device] if device.type == "cuda" else None, init_sync=False, **options
        )


def optimizer(
    plan: TrainingPlan,
    parameters: list[nn.Parameter] | list[dict[str, Any]],
    replicas: distributed.ProcessGroup | None = None,
) -> torch.optim.Optimizer:
    """Build the optimizer of whole or cut parameters; with Z1 its states are divided over `replicas`.

    None stands for all ranks.
    """
    make = partial(_local, plan)
    if plan.dims.tp > 1 and plan.techniques.zero_stage == 1:
        assert replicas is not None
        return PartitionedOptimizer(parameters, make, replicas)  # type: ignore[arg-type]
    options = plan.engine_config.get("zero_redundancy_optimizer")
    if options is None:
        return make(parameters)
    # Any callable that makes an optimizer is accepted.
    return ZeroRedundancyOptimizer(parameters, make, process_group=replicas, **options)  # type: ignore[arg-type]


def _local(plan: TrainingPlan, parameters: list[nn.Parameter] | list[dict[str, Any]]) -> torch.optim.Optimizer:
    precision = plan.config.precision
    if precision.master == precision.parameters:
        return assembly.optimizer(plan, parameters)
    return MasterCopy(parameters, torch_dtype(precision.master), partial(assembly.optimizer, plan))


def _average_in_backward(parameters: Iterable[nn.Parameter]) -> None:
    """Add hooks that average gradients; call this before the optimizer adds its own hooks.

    Backward reaches the parameters in the same order on all ranks.
    """
    for parameter in parameters:
        parameter.register_post_accumulate_grad_hook(_average)


def _average(parameter: nn.Parameter) -> None:
    if parameter.grad is not None:
        parameter.grad /= distributed.get_world_size()
        distributed.all_reduce(parameter.grad)


class MasterCopy(torch.optim.Optimizer):
    """An optimizer of copies, which `make` builds: it updates the copies, then rounds them into the parameters.

    At each step it gets the gradients in the copies' dtype, multiplied by `share`.
    """

    share: torch.Tensor | float | None = None

    def __init__(
        self,
        parameters: Iterable[nn.Parameter] | list[dict[str, Any]],
        dtype: torch.dtype,
        make: Callable[[list[dict[str, Any]]], torch.optim.Optimizer],
    ) -> None:
        super().__init__(parameters, {})
        groups: list[list[nn.Parameter]] = [group["params"] for group in self.param_groups]
        copies = [[nn.Parameter(parameter.detach().to(dtype)) for parameter in group] for group in groups]
        self._parameters, self._copies = list(chain(*groups)), list(chain(*copies))
        self.inner = make([{"params": group} for group in copies])

    def copies_of(self, parameters: Sequence[nn.Parameter]) -> list[nn.Parameter]:
        """Return the copies of these parameters, but for those that other ranks update."""
        copies = {id(one): copy for one, copy in zip(self._parameters, self._copies, strict=True)}
        return [copies[id(parameter)] for parameter in parameters if id(parameter) in copies]

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update the copies; each gradient is dropped once it is converted, so that never both are whole."""
        for parameter, copy in zip(self._parameters, self._copies, strict=True):
            if parameter.grad is not None:
                copy.grad, parameter.grad = parameter.grad.to(copy.dtype), None
        if self.share is not None:
            torch._foreach_mul_([copy.grad for copy in self._copies if copy.grad is not None], self.share)
        self.inner.step()
        self.inner.zero_grad()
        torch._foreach_copy_(list(map(local, self._parameters)), list(map(local, self._copies)))
