"""Expert parallelism without a partition of state: a rank's experts, all other parameters, and their averaging."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import torch
from accelerate import init_empty_weights
from torch import Tensor, distributed, nn
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

from llmexp.launchers.models import assembly
from llmexp.launchers.models.weights import weights_of
from llmexp.launchers.torch_native.replicated import optimizer
from llmexp.launchers.torch_native.shared_experts import EXPERT, mesh_of_experts
from llmexp.launchers.torch_native.tensor_parallel import REPLICA, TENSOR, Sharers, materialize_parts, settled
from llmexp.launchers.torch_native.wrapped import WrappedModel
from llmexp.training.plan.training_plan import TrainingPlan


class ExpertParallel(WrappedModel):
    """A rank's experts and all other parameters with their optimizer; gradients are averaged after backward.

    With tensor parallelism it has parts of the other matrices.
    """

    def __init__(self, plan: TrainingPlan, device: torch.device) -> None:
        dims = plan.dims
        super().__init__(plan)
        mesh = init_device_mesh(device.type, (dims.same_parameters, dims.tp), mesh_dim_names=(REPLICA, TENSOR))
        experts = mesh_of_experts(dims, device, REPLICA)
        with init_empty_weights(include_buffers=False):
            model = assembly.unseeded_model(plan, device)
        self.model_class = assembly.class_name(model)
        source = weights_of(plan.config)(model)
        self.module = materialize_parts(model, source, plan, Sharers(mesh[TENSOR], experts), device)
        self.model = self.module
        # torch's fused update takes parameters of one kind at a time.
        shared, others = by_kind(assembly.trained(self.module))
        self._averaged = ((others, mesh.get_group(REPLICA)), (shared, experts.get_group(REPLICA)))
        self.optimizer = optimizer(plan, [{"params": others}, {"params": shared}])

    def begin_pass(self, *, last: bool) -> None:
        """Do nothing: gradients stay on their rank until `average`."""

    def average(self) -> None:
        """Average gradients over the ranks that hold the same parameters.

        Those of experts are of the tokens of all ranks of a group, as a mean over their losses.
        """
        held = [(settled_gradients(parameters), group) for parameters, group in self._averaged]
        for gradients, group in held:
            torch._foreach_div_(gradients, group.size())
        add_up(held)

    @property
    def holders(self) -> ProcessGroup | None:
        """Return all ranks: experts and all else are divided over different ones."""
        return distributed.group.WORLD


def by_kind(parameters: Iterable[nn.Parameter]) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Return the parameters of experts that ranks share out, and all others."""
    kinds: tuple[list[nn.Parameter], list[nn.Parameter]] = [], []
    for parameter in parameters:
        mesh = parameter.device_mesh if isinstance(parameter, DTensor) else None
        kinds[mesh is None or EXPERT not in (mesh.mesh_dim_names or ())].append(parameter)
    return kinds


def settled_gradients(parameters: Iterable[nn.Parameter]) -> list[Tensor]:
    """Return this rank's gradients; those of parts are added up where ranks have some positions' alone."""
    held = [parameter for parameter in parameters if parameter.grad is not None]
    return [settled(each) if isinstance(each, DTensor) else each.grad for each in held]  # type: ignore[misc]


def add_up(held: Iterable[tuple[list[Tensor], ProcessGroup]]) -> None:
    """Add each gradient up over the ranks of its group."""
    sent = [
        [distributed.all_reduce(each, group=group, async_op=True) for each in gradients]
        for gradients, group in held
        if group.size() > 1
    ]
    for each in chain(*sent):
        each.wait()
