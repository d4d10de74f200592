"""The loss of hidden states: a head's product, the loss and their gradients for few tokens at a time.

All logits of a pass never exist together. Gradients are made in forward, while a chunk's logits are there, so that no
product runs twice. The functions that torch 2.13 has for it are not in the versions of GPU machines, and give a loss in
bf16 for weights in bf16.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed
from torch.distributed.tensor import DTensor, Partial
from torch.nn import functional

from llmexp.launchers.data.sequences import IGNORED
from llmexp.training.plan.activations import LOSS_ROWS


class _Loss(torch.autograd.Function):
    """The mean next-token loss of rows of hidden states, whose backward scales the gradients that forward made."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Targets, cut: Cut | None) -> Tensor:
        ctx.of_hidden = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        ctx.of_weight = torch.zeros_like(weight) if ctx.needs_input_grad[1] else None
        total, shares = hidden.new_zeros((), dtype=torch.float32), targets.shares
        own = _own(targets.labels, len(weight), cut)
        for begin in range(0, len(own), LOSS_ROWS):
            part = slice(begin, begin + LOSS_ROWS)
            of_logits = _log_softmax(hidden[part], weight, cut)
            total += functional.nll_loss(of_logits, own[part], ignore_index=IGNORED, reduction="none") @ shares[part]
            if ctx.of_hidden is not None or ctx.of_weight is not None:
                _to_gradient(of_logits, own[part], shares[part])
                _multiply(of_logits.to(weight.dtype), hidden[part], weight, ctx, part)
            del of_logits
        if cut:
            distributed.all_reduce(total, group=cut.ranks)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        made = ctx.of_hidden, ctx.of_weight
        ctx.of_hidden = ctx.of_weight = None
        return *(None if each is None else each.mul_(gradient) for each in made), None, None


@dataclass(frozen=True)
class Cut:
    """The ranks that have parts of a weight, cut by the vocabulary, and the place of this rank's part."""

    ranks: distributed.ProcessGroup
    place: int


@dataclass(frozen=True)
class Targets:
    """The token that follows each position, and its share of the mean over whole sequences."""

    labels: Tensor
    shares: Tensor

    @classmethod
    def of(
        cls, labels: Tensor, shift_labels: Tensor | None = None, num_items_in_batch: Tensor | None = None
    ) -> Targets:
        """Take what a model's loss takes: of a part of sequences, labels that are shifted, and how many count in all.

        The share is 0 where the label is left out; NaN where all labels are.
        """
        shifted = functional.pad(labels[..., 1:], (0, 1), value=IGNORED) if shift_labels is None else shift_labels
        counts = (shifted.flatten() != IGNORED).float()
        return cls(shifted.flatten(), counts / (counts.sum() if num_items_in_batch is None else num_items_in_batch))


def _own(labels: Tensor, rows: int, cut: Cut | None) -> Tensor:
    """Return labels as places in this rank's rows of the weight, which are its part of the vocabulary, or `IGNORED`."""
    if cut is None:
        return labels
    own = labels - cut.place * rows
    return own.masked_fill_((own < 0) | (own >= rows), IGNORED)


def _log_softmax(hidden: Tensor, weight: Tensor, cut: Cut | None) -> Tensor:
    """Return this rank's part of a chunk's log-softmax [rows, vocab_size / tp], in fp32."""
    if cut is None:
        return torch.log_softmax(hidden @ weight.t(), -1, dtype=torch.float32)
    logits = (hidden @ weight.t()).float()
    largest = logits.amax(-1, keepdim=True)
    distributed.all_reduce(largest, op=distributed.ReduceOp.MAX, group=cut.ranks)
    total = logits.sub_(largest).exp().sum(-1, keepdim=True)
    distributed.all_reduce(total, group=cut.ranks)
    return logits.sub_(total.log_())


def _to_gradient(log_softmax: Tensor, own: Tensor, shares: Tensor) -> None:
    """Change a chunk's log-softmax in place to the gradient of its logits."""
    of_logits, at = log_softmax.exp_(), own.clamp(min=0).unsqueeze(1)
    of_logits.scatter_add_(1, at, -(own != IGNORED).float().unsqueeze(1)).mul_(shares.unsqueeze(1))


def _multiply(of_logits: Tensor, hidden: Tensor, weight: Tensor, ctx: Any, part: slice) -> None:
    """Multiply a chunk's gradient of logits into those of the hidden states and of the weight, in its dtype."""
    if ctx.of_hidden is not None:
        torch.mm(of_logits, weight, out=ctx.of_hidden[part])
    if ctx.of_weight is not None:
        torch.addmm(ctx.of_weight, of_logits.t(), hidden, out=ctx.of_weight)


def loss_in_chunks(hidden: Tensor, weight: Tensor, targets: Targets, cut: Cut | None = None) -> tuple[Tensor, int]:
    """Return the mean loss of hidden states [..., hidden_size], or their share of it, in fp32, and its chunks.

    Of a weight that is cut, each rank computes its part, and has the same loss. Its gradient of the hidden states is a
    part of their sum.
    """
    if isinstance(weight, DTensor):
        assert isinstance(hidden, DTensor)
        cut = Cut(weight.device_mesh.get_group(), weight.device_mesh.get_local_rank())
        hidden, weight = hidden.to_local(grad_placements=[Partial()]), weight.to_local()
    loss: Tensor = _Loss.apply(hidden.flatten(0, -2), weight, targets, cut)
    return loss, -(-len(targets.labels) // LOSS_ROWS)
