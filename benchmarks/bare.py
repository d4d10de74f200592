"""A plain training step of each engine, as people write it: the cost of the engine's own calls on one fixed batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # it imports torch, and a child's peak memory includes that of the process that starts it
    from llmexp.measure.batch import MicroBatch


def deepspeed(training: Any, batch: MicroBatch) -> None:
    """Run a step by the engine's three calls."""
    loss = training.engine(input_ids=batch.input_ids, labels=batch.labels).loss
    training.engine.backward(loss)
    training.engine.step()


def torch(training: Any, batch: MicroBatch) -> None:
    """Run a step by the wrapped model and the optimizer."""
    training.layout.model(input_ids=batch.input_ids, labels=batch.labels).loss.backward()
    training.layout.optimizer.step()
    training.layout.optimizer.zero_grad()


def megatron(training: Any, batch: MicroBatch) -> None:
    """Run a step by the stage, the end of the reduction and the optimizer, without a schedule."""
    from megatron.core.distributed import finalize_model_grads
    from torch.nn.functional import pad

    (stage,) = training.stages
    targets = pad(batch.labels[:, 1:], (0, 1))
    stage(batch.input_ids, None, None, labels=targets)[:, :-1].mean().backward()
    finalize_model_grads(training.stages)
    training.optimizer.step()
    stage.zero_grad_buffer()
    training.optimizer.zero_grad()


STEPS: dict[str, Callable[[Any, MicroBatch], None]] = {"deepspeed": deepspeed, "torch": torch, "megatron": megatron}
