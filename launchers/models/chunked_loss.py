"""A head that computes its product, the loss and their gradients for few tokens at a time.

All logits of a pass never exist together. Gradients are made in forward, while a chunk's logits are there, so that no
product runs twice. The functions that torch 2.13 has for it are not in the versions of GPU machines, and give a loss in
bf16 for weights in bf16.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from llmexp.errors import ConfigError
from llmexp.record.what_ran import WhatRan
from llmexp.training.plan.activations import LOSS_ROWS

IGNORED = -100


class _Loss(torch.autograd.Function):
    """The mean next-token loss of rows of hidden states, whose backward scales the gradients that forward made."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
        ctx.of_hidden = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        ctx.of_weight = torch.zeros_like(weight) if ctx.needs_input_grad[1] else None
        total, shares = hidden.new_zeros((), dtype=torch.float32), _shares(labels)
        for begin in range(0, len(labels), LOSS_ROWS):
            part = slice(begin, begin + LOSS_ROWS)
            of_logits = _log_softmax(hidden[part], weight)
            total += functional.nll_loss(of_logits, labels[part], ignore_index=IGNORED, reduction="none") @ shares[part]
            if ctx.of_hidden is not None or ctx.of_weight is not None:
                _to_gradient(of_logits, labels[part], shares[part])
                _multiply(of_logits.to(weight.dtype), hidden[part], weight, ctx, part)
            del of_logits
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        made = ctx.of_hidden, ctx.of_weight
        ctx.of_hidden = ctx.of_weight = None
        return *(None if each is None else each.mul_(gradient) for each in made), None


def _shares(labels: Tensor) -> Tensor:
    """Return the share of each row in the mean: 0 where the label is left out; NaN where all labels are."""
    counted = (labels != IGNORED).float()
    return counted / counted.sum()


def _log_softmax(hidden: Tensor, weight: Tensor) -> Tensor:
    return torch.log_softmax(hidden @ weight.t(), -1, dtype=torch.float32)


def _to_gradient(log_softmax: Tensor, labels: Tensor, shares: Tensor) -> None:
    """Change a chunk's log-softmax in place to the gradient of its logits."""
    of_logits, at = log_softmax.exp_(), labels.clamp(min=0).unsqueeze(1)
    of_logits.scatter_add_(1, at, torch.full_like(at, -1, dtype=torch.float32)).mul_(shares.unsqueeze(1))


def _multiply(of_logits: Tensor, hidden: Tensor, weight: Tensor, ctx: Any, part: slice) -> None:
    """Multiply a chunk's gradient of logits into those of the hidden states and of the weight, in its dtype."""
    if ctx.of_hidden is not None:
        torch.mm(of_logits, weight, out=ctx.of_hidden[part])
    if ctx.of_weight is not None:
        torch.addmm(ctx.of_weight, of_logits.t(), hidden, out=ctx.of_weight)


class LossHead(nn.Linear):
    """A head that returns the loss while it has labels, and else is an ordinary one."""

    labels: Tensor | None = None
    chunks: int = 0

    def forward(self, input: Tensor) -> Tensor:
        """Return the mean loss of the next tokens, in fp32, or the logits where there are no labels."""
        if self.labels is None:
            return super().forward(input)
        labels = functional.pad(self.labels, (0, 1), value=IGNORED)[..., 1:].flatten()
        self.chunks = -(-len(labels) // LOSS_ROWS)
        loss: Tensor = _Loss.apply(input.flatten(0, -2), self.weight, labels)
        return loss


def use_chunked_loss(model: PreTrainedModel) -> None:
    """Let the model's head compute the loss, inside its own forward, where engines gather its weight."""
    head = model.get_output_embeddings()
    if type(head) is not nn.Linear or head.bias is not None:
        raise ConfigError("kernels.chunked_loss=true: this model's head is no plain linear layer: leave it out")
    head.__class__ = LossHead
    ordinary = model.forward

    # PEFT calls forward itself, so that hooks would not run.
    @wraps(ordinary)
    def forward(*arguments: Any, labels: Tensor | None = None, **options: Any) -> Any:
        head.labels = labels
        try:
            return ordinary(*arguments, labels=labels, **options)
        finally:
            head.labels = None

    model.forward = forward
    model.loss_function = _made_by_head


def _made_by_head(logits: Tensor, *_: Any, **__: Any) -> Tensor:
    return logits


def chunks_that_ran(module: nn.Module) -> WhatRan:
    """Say, for what_ran, in how many chunks the last pass computed its loss, where any were asked for."""
    head = next((each for each in module.modules() if isinstance(each, LossHead)), None)
    return {"loss_chunks": head.chunks} if head else {}
