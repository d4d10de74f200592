"""Layers with experts between cut matrices: the ranks that cut these have other tokens of a sequence there.

Whole experts are shared out over these ranks too. A router is whole on every rank, and sees the rank's tokens.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Partial, Replicate, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle

from llmexp.launchers.torch_native.shared_experts import Local, experts_of


def layers_of_experts(model: nn.Module) -> list[str]:
    """Return the names of the modules that have a router and its experts."""
    names = {id(module): name for name, module in model.named_modules()}
    return [names[id(experts)].rpartition(".")[0] for experts in experts_of(model)]


class Router(ParallelStyle):
    """A router that every rank has whole; ranks add up its gradients, as each has those of its own tokens."""

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> nn.Module:
        module.weight = nn.Parameter(distribute_tensor(module.weight, device_mesh, [Replicate()]))
        module.forward = partial(_routed, module)
        made: nn.Module = module
        return made


def _routed(router: nn.Module, hidden: Tensor) -> Any:
    return type(router).forward(Local(router, ("weight",), [Partial()]), hidden)
