"""For engine=script: the callback that tells llmexp of every step of a Hugging Face Trainer, and of what is built on it, such as TRL's.

trainer.add_callback(StepCallback(tokens=micro * accumulation * seq_len))
"""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from llmexp import hook


class StepCallback(TrainerCallback):
    """Reports where the Trainer logs the step's loss, which it does after the update; outside llmexp it does nothing."""

    def __init__(self, tokens: int) -> None:
        """`tokens`: positions of one rank in a step, padding included, all passes of an accumulation together."""
        self._tokens = tokens

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Raise ValueError where not every step would be logged."""
        if args.logging_steps != 1 or args.logging_strategy != "steps":
            raise ValueError("llmexp hears of a step when its loss is logged: set logging_strategy='steps' and logging_steps=1")

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: dict[str, float] | None = None, **_: Any) -> None:
        """Report a step; other logs, as of an evaluation, are not steps."""
        if logs and "loss" in logs:
            hook.step(self._tokens, logs["loss"])
