"""The callback that reports every step of a Hugging Face Trainer to llmexp, for engine=script.

It also works for trainers that are built on it, such as TRL's. Use: trainer.add_callback(StepCallback())
"""

from __future__ import annotations

from typing import Any

from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments, trainer

from llmexp import hook


def add_to_every_trainer() -> None:
    """Give the callback to every Trainer that this process makes from now on."""
    trainer.DEFAULT_CALLBACKS.append(StepCallback)


class StepCallback(TrainerCallback):
    """Reports a step when the Trainer logs its loss, after the update; outside llmexp it does nothing."""

    def __init__(self) -> None:
        self._positions = 0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        """Begin to count the positions of the model's passes; raise ValueError where not every step would be logged."""
        if not hook.is_heard():
            return
        if args.logging_steps != 1 or args.logging_strategy != "steps":
            raise ValueError(
                "llmexp sees a step only when its loss is logged: set logging_strategy='steps' and logging_steps=1"
            )
        hook.model(others["model"])
        others["model"].register_forward_pre_hook(self._count, with_kwargs=True)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **_: Any,
    ) -> None:
        """Report a step; other logs, such as those of an evaluation, are not steps."""
        if logs and "loss" in logs:
            hook.step(self._positions, logs["loss"])
            self._positions = 0

    def _count(self, module: nn.Module, args: tuple[Any, ...], given: dict[str, Any]) -> None:
        """Add the number of tokens, or of labels where embeddings replace the tokens."""
        tokens = given.get("input_ids", args[0] if args else None)
        if module.training:
            self._positions += (given["labels"] if tokens is None else tokens).numel()
