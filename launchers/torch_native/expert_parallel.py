"""Expert parallelism without a partition of state: a rank's experts, all other parameters, and their averaging."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from accelerate import init_empty_weights
from torch import Tensor, distributed, nn
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

from llmexp.launchers.models import assembly, building
from llmexp.launchers.models.weights import weights_of
from llmexp.launchers.torch_native.replicated import optimizer
from llmexp.launchers.torch_native.shared_experts import EXPERT, share_experts
from llmexp.launchers.torch_native.tensor_parallel import REPLICA, fill_parts
from llmexp.launchers.torch_native.wrapped import WrappedModel
from llmexp.measure.dtypes import torch_dtype
from llmexp.training.plan.training_plan import TrainingPlan


class ExpertParallel(WrappedModel):
    """A rank's experts and all other parameters with their optimizer; gradients are averaged after backward."""

    def __init__(self, plan: TrainingPlan, device: torch.device) -> None:
        dims = plan.dims
        super().__init__(plan)
        sizes = (dims.same_experts, dims.ep)
        mesh = init_device_mesh(device.type, sizes, mesh_dim_names=(REPLICA, EXPERT))
        self._replicas, self._ranks = mesh.get_group(REPLICA), mesh.get_group(EXPERT)
        with init_empty_weights(include_buffers=False):
            model = assembly.unseeded_model(plan, device)
        self.model_class = assembly.class_name(model)
        source = weights_of(plan.config)(model)
        self.module = assembly.with_atoms(model, plan)
        share_experts(self.module, mesh[EXPERT])
        buffers = building.ExactBuffers(self.module)
        self.module.to_empty(device=device)
        self.module.tie_weights()
        buffers.restore(device)
        fill_parts(self.module, source, torch_dtype(plan.config.precision.parameters), device)
        self.model = self.module
        # torch's fused update takes parameters of one kind at a time.
        self._experts, self._others = _by_kind(assembly.trained(self.module))
        self.optimizer = optimizer(plan, [{"params": self._others}, {"params": self._experts}])

    def begin_pass(self, *, last: bool) -> None:
        """Do nothing: gradients stay on their rank until `average`."""

    def average(self) -> None:
        """Average gradients over the ranks that hold the same parameters.

        Those of experts are of the tokens of all ranks of a group, as a mean over them.
        """
        sent = [
            *_averaged(self._others, self._plan.dims.same_parameters, distributed.group.WORLD),
            *_averaged(self._experts, self._plan.dims.same_experts, self._replicas),
        ]
        for each in sent:
            each.wait()

    @property
    def holders(self) -> ProcessGroup:
        """Return the ranks that together hold all experts."""
        return self._ranks

    @property
    def copies_of_others(self) -> int:
        """How many of `holders` hold the same parameters that are no experts': all of them."""
        return self._plan.dims.ep


def _by_kind(parameters: Sequence[nn.Parameter]) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Return the parameters of experts, which are DTensors, and all others."""
    experts: list[nn.Parameter] = [parameter for parameter in parameters if isinstance(parameter, DTensor)]
    return experts, [parameter for parameter in parameters if not isinstance(parameter, DTensor)]


def _averaged(parameters: Sequence[nn.Parameter], ranks: int, group: ProcessGroup | None) -> list[Any]:
    """Begin to average gradients over the ranks of a group; wait for what is returned."""
    if ranks == 1:
        return []
    gradients: list[Tensor] = [
        getattr(parameter.grad, "_local_tensor", parameter.grad)
        for parameter in parameters
        if parameter.grad is not None
    ]
    torch._foreach_div_(gradients, ranks)
    return [distributed.all_reduce(each, group=group, async_op=True) for each in gradients]
