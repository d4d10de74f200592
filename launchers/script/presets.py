"""Presets, for engine.options.preset, that follow the steps of common training programs without a change in them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ProgramPreset:
    """A regular expression for the line that ends a step; without one, transformers' Trainers get a callback."""

    every_step: str
    """The program's own setting for a log interval of 1, with which it reports each step."""
    pattern: str | None = None


PROGRAM_PRESETS = {
    # pretrain_gpt.py, training_log in megatron/training/training.py; the last rank prints.
    "megatron_lm": ProgramPreset(
        every_step="--log-interval 1",
        pattern=(
            r"iteration\s+(?P<step>\d+)/\s*\d+ \|.* global batch size:\s+(?P<samples>\d+) \|.* lm loss: (?P<loss>\S+)"
        ),
    ),
    # MetricsProcessor.log; every rank prints, and pipeline ranks without a loss print -1.
    "torchtitan": ProgramPreset(
        every_step="--metrics.log_freq 1",
        pattern=r"(?<!validate )step:\s*(?P<step>\d+)\s+loss:\s*(?P<loss>[\d.]+|nan|inf)\s",
    ),
    # train.py; rank 0 prints.
    "nanogpt": ProgramPreset(
        every_step="--log_interval=1",
        pattern=r"^iter (?P<step>\d+): loss (?P<loss>[\d.]+|nan|inf), time ",
    ),
    # scripts/train.py of LLMQ, or its C++ program: TrainingRunLogger::log_step; one process prints for all its GPUs.
    "llmq": ProgramPreset(
        every_step="the verbosity to its default",
        pattern=r"^\[T\] step\s+(?P<step>\d+) .*\| loss\s+(?P<loss>[\d.]+|-?nan|-?inf) \|",
    ),
    "trainer": ProgramPreset(every_step="logging_steps=1"),
    "trl": ProgramPreset(every_step="logging_steps=1"),
    "llamafactory": ProgramPreset(every_step="logging_steps: 1"),
}
