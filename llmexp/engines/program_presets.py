"""How to hear of the steps of programs that many people train with, without a line of llmexp in them: engine.options.adapter."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ProgramPreset:
    """A regular expression for the line that ends a step, or None: every Trainer of transformers gets a callback."""

    every_step: str
    """What makes the program say each step: its word for a log interval of 1."""
    pattern: str | None = None


PROGRAM_PRESETS = {
    # pretrain_gpt.py, training_log in megatron/training/training.py; the last rank prints.
    "megatron_lm": ProgramPreset(
        every_step="--log-interval 1",
        pattern=r"iteration\s+(?P<step>\d+)/\s*\d+ \|.* global batch size:\s+(?P<samples>\d+) \|.* lm loss: (?P<loss>\S+)",
    ),
    # MetricsProcessor.log; every rank prints, those of a pipeline that have no loss print -1.
    "torchtitan": ProgramPreset(
        every_step="--metrics.log_freq 1",
        pattern=r"(?<!validate )step:\s*(?P<step>\d+)\s+loss:\s*(?P<loss>[\d.]+|nan|inf)\s",
    ),
    # train.py; rank 0 prints.
    "nanogpt": ProgramPreset(
        every_step="--log_interval=1",
        pattern=r"^iter (?P<step>\d+): loss (?P<loss>[\d.]+|nan|inf), time ",
    ),
    "trainer": ProgramPreset(every_step="logging_steps=1"),
    "trl": ProgramPreset(every_step="logging_steps=1"),
    "llamafactory": ProgramPreset(every_step="logging_steps: 1"),
}
