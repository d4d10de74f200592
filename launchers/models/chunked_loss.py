"""A transformers head that computes its product, the loss and their gradients for few tokens at a time."""

from __future__ import annotations

from functools import wraps
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

from llmexp.errors import ConfigError
from llmexp.launchers.models.loss_in_chunks import Targets, loss_in_chunks
from llmexp.record.what_ran import WhatRan


class LossHead(nn.Linear):
    """A head that returns the loss while it has targets, and else is an ordinary one."""

    targets: Targets | None = None
    chunks: int = 0

    def forward(self, input: Tensor) -> Tensor:
        """Return the mean loss of the next tokens, in fp32, or the logits where there are no targets."""
        return self.project(input, self.weight)

    def project(self, input: Tensor, weight: Tensor) -> Tensor:
        """Return the same by a weight that stands for the head's own."""
        if self.targets is None:
            return nn.functional.linear(input, weight)
        loss, self.chunks = loss_in_chunks(input, weight, self.targets)
        return loss

    def loss(self, hidden: Tensor, targets: Targets) -> Tensor:
        """Return the mean loss of these hidden states, or their share of it."""
        self.targets = targets
        try:
            made: Tensor = self(hidden)
        finally:
            self.targets = None
        return made


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
        shared = {name: options.get(name) for name in ("shift_labels", "num_items_in_batch")}
        head.targets = None if labels is None else Targets.of(labels, **shared)
        try:
            return ordinary(*arguments, labels=labels, **options)
        finally:
            head.targets = None

    model.forward = forward
    model.loss_function = _made_by_head


def _made_by_head(logits: Tensor, *_: Any, **__: Any) -> Tensor:
    return logits


def chunks_that_ran(module: nn.Module) -> WhatRan:
    """Say, for what_ran, in how many chunks the last pass computed its loss, where any were asked for."""
    head = next((each for each in module.modules() if isinstance(each, LossHead)), None)
    return {"loss_chunks": head.chunks} if head else {}
