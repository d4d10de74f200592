"""Experts that neighboring ranks share: each holds whole ones of every layer, and tokens go to the ranks of theirs.

A rank counts its tokens for each expert, tells the others, and sends. Results come back the same way, and are added up
where the token is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Placement, Shard

from llmexp.record.what_ran import WhatRan
from llmexp.training.plan.dims import ParallelDims

EXPERT = "expert"
STACKS = ("gate_up_proj", "down_proj")


def share_experts(model: nn.Module, ranks: DeviceMesh, losses: float | None = None) -> None:
    """Leave each rank its experts, on whatever device they are, and send tokens to the experts of others.

    Gradients of experts come out as the sum over all tokens of the ranks, divided by `losses`, which is their number by
    default.
    """
    for module in experts_of(model):
        for name in STACKS:
            setattr(module, name, _own(getattr(module, name), ranks))
        module.num_experts = module.num_experts // ranks.size()  # type: ignore[assignment, operator]
        module.forward = Exchange(module, ranks.get_group(), losses or ranks.size())


def mesh_of_experts(dims: ParallelDims, device: torch.device, same: str) -> DeviceMesh:
    """Return the ranks by their stage, by the experts that they hold, and by those that they do not: the nearest ones.

    `same` is the name of the axis of ranks with the same experts.
    """
    sizes, names = (dims.pp, dims.same_experts, dims.ep), ("stage", same, EXPERT)
    return init_device_mesh(device.type, sizes, mesh_dim_names=names)


def losses_of(dims: ParallelDims) -> float:
    """Return how many of the ranks that share out experts have losses of their own, of which a step's is the mean.

    Those that cut matrices have one loss together.
    """
    return dims.same_parameters / dims.same_experts


def experts_of(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the modules that hold the experts of a layer as stacks of matrices."""
    for module in model.modules():
        if all(getattr(module, name, None) is not None and getattr(module, name).dim() == 3 for name in STACKS):
            yield module


def _own(stack: nn.Parameter, ranks: DeviceMesh) -> nn.Parameter:
    part = torch.empty_like(stack[: len(stack) // ranks.size()])
    return nn.Parameter(DTensor.from_local(part, ranks, [Shard(0)], run_check=False))


class Exchange:
    """The forward pass of a layer's experts that ranks share: to their ranks, through them, and back.

    Gradients of experts' parameters come out divided by `losses`: as a mean over the ranks of the group where each has
    one of its own, like those of other parameters after averaging.
    """

    def __init__(self, experts: nn.Module, group: ProcessGroup, losses: float) -> None:
        self._experts, self._group, self._losses = experts, group, losses
        self.sent = self.received = 0

    def __call__(self, hidden: Tensor, index: Tensor, weights: Tensor) -> Tensor:
        """Return the sum of each token's weighted results; `index` and `weights` are [tokens, experts a token]."""
        chosen = index.flatten()
        order = chosen.argsort(stable=True)
        counts, sizes = self._counts(chosen)
        going = hidden[order // index.shape[1]], weights.flatten()[order]
        rows, shares = _Exchanged.apply(*sizes, self._group, self._losses, *going)
        results = self._compute(rows, shares, counts)
        (back,) = _Exchanged.apply(*reversed(sizes), self._group, 1 / self._losses, results)
        whole = back[order.argsort()].view(*index.shape, hidden.shape[1]).sum(dim=1)
        return whole.to(hidden.dtype)

    def _counts(self, chosen: Tensor) -> tuple[Tensor, tuple[list[int], list[int]]]:
        """Return the tokens that come from each rank for each expert here, and how many go to and come from each."""
        here, ranks = int(self._experts.num_experts), self._group.size()  # type: ignore[arg-type]
        outward = chosen.new_zeros(ranks * here).scatter_add_(0, chosen, torch.ones_like(chosen)).view(ranks, here)
        inward = torch.empty_like(outward)
        distributed.all_to_all_single(inward, outward, group=self._group)
        to, come = rows_by_rank(torch.stack((outward.sum(1), inward.sum(1))), len(chosen))
        own = self._group.rank()
        self.sent, self.received = sum(to) - to[own], sum(come) - come[own]
        return inward, (to, come)

    def _compute(self, rows: Tensor, shares: Tensor, counts: Tensor) -> Tensor:
        """Return the weighted results of the experts here, in the rows' order."""
        experts = torch.arange(counts.shape[1], device=counts.device).repeat(counts.shape[0])
        chosen = experts.repeat_interleave(counts.flatten(), output_size=len(rows))
        if not len(rows):
            # Without any row some implementations would leave parameters without gradients, which other ranks average.
            rows, shares, chosen = (
                torch.cat((each, each.new_zeros(1, *each.shape[1:]))) for each in (rows, shares, chosen)
            )
            return self._call(rows, chosen, shares)[:0]
        return self._call(rows, chosen, shares)

    def _call(self, rows: Tensor, chosen: Tensor, shares: Tensor) -> Tensor:
        plain = Local(self._experts, STACKS)
        results: Tensor = type(self._experts).forward(plain, rows, chosen[:, None], shares[:, None])
        return results


def rows_by_rank(counts: Tensor, rows: int) -> list[list[int]]:
    """Return how many of the rows go to each rank, and how many come from each; the host waits for them."""
    read: list[list[int]] = counts.tolist()
    return read


class Local:
    """A module with some parameters as plain tensors, for transformers' own functions.

    `gradients` is how each rank then has the gradients of these; None: as it has the parameters.
    """

    def __init__(self, module: nn.Module, names: Sequence[str], gradients: Sequence[Placement] | None = None) -> None:
        self._module = module
        for name in names:
            parameter = getattr(module, name)
            is_part = isinstance(parameter, DTensor)
            setattr(self, name, parameter.to_local(grad_placements=gradients) if is_part else parameter)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


class _Exchanged(torch.autograd.Function):
    """An all-to-all of rows of some tensors: `to` rows go to each rank, and `come` come from each.

    Gradients go back the same way, multiplied by a factor. Tensors go together, as all ranks have to send their
    gradients in the same order.
    """

    @staticmethod
    def forward(
        ctx: Any, to: list[int], come: list[int], group: ProcessGroup, factor: float, *rows: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.sizes, ctx.group, ctx.factor = (to, come), group, factor
        return tuple(_exchanged(each, to, come, group) for each in rows)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        to, come = ctx.sizes
        back = [_exchanged(each, come, to, ctx.group).mul_(ctx.factor) for each in gradients]
        return None, None, None, None, *back


def _exchanged(rows: Tensor, to: list[int], come: list[int], group: ProcessGroup) -> Tensor:
    received = rows.new_empty(sum(come), *rows.shape[1:])
    distributed.all_to_all_single(received, rows.contiguous(), come, to, group=group)
    return received


def exchanged_tokens(model: nn.Module) -> WhatRan:
    """Say, for what_ran, how many tokens went to and came from experts of other ranks, where they are shared out."""
    exchanges = [module.forward for module in model.modules() if isinstance(module.forward, Exchange)]
    if not exchanges:
        return {}
    return {
        "expert_tokens_sent": sum(each.sent for each in exchanges),
        "expert_tokens_received": sum(each.received for each in exchanges),
    }
