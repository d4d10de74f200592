"""torch's replicas: the whole model on every rank, gradients averaged by DDP, with Z1 the optimizer's states shared out."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from llmexp.launchers import assembly
from llmexp.launchers.master_copy import MasterCopy
from llmexp.launchers.seeding import DTYPES
from llmexp.plan.run_plan import RunPlan


class Replicated:
    """A model, in DDP where there are several ranks, and its optimizer."""

    offloads = False

    def __init__(self, plan: RunPlan, device: torch.device) -> None:
        self._plan = plan
        self.module = assembly.seeded_model(plan, device)
        self.model_class = assembly.class_name(self.module)
        assembly.apply_atoms(self.module, assembly.method_of(plan))
        assembly.compile_atom(self.module, assembly.method_of(plan))
        self.model = self._wrapped(device)
        self.optimizer = self._optimizer(assembly.trained(self.module))

    def begin_pass(self, *, last: bool) -> None:
        """Gradients stay on their rank until the pass that completes a step."""
        if isinstance(self.model, DistributedDataParallel):
            self.model.require_backward_grad_sync = last

    @property
    def reduced_in(self) -> torch.dtype:
        """DDP's buckets are of the gradients' dtype."""
        return DTYPES[self._plan.config.precision.gradients]

    def _wrapped(self, device: torch.device) -> nn.Module:
        options = self._plan.engine_config.get("distributed_data_parallel")
        if options is None:
            return self.module
        # Layers are compiled one by one: nothing is left to cut at the buckets' bounds.
        torch._dynamo.config.optimize_ddp = False
        # Weights are seeded alike on all ranks, so that there is nothing to send.
        return DistributedDataParallel(self.module, device_ids=[device] if device.type == "cuda" else None, init_sync=False, **options)

    def _optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        options = self._plan.engine_config.get("zero_redundancy_optimizer")
        if options is None:
            return self._local(parameters)
        # Any callable does that makes an optimizer.
        return ZeroRedundancyOptimizer(parameters, self._local, **options)  # type: ignore[arg-type]

    def _local(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        precision = self._plan.config.precision
        if precision.master == precision.parameters:
            return assembly.optimizer(self._plan, parameters)
        return MasterCopy(parameters, DTYPES[precision.master], lambda copies: assembly.optimizer(self._plan, copies))
