"""The factor that losses are multiplied by where gradients are in fp16, which small ones would vanish in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

import torch

from llmexp.errors import ConfigError
from llmexp.measure.batch import MicroBatch
from llmexp.measure.loop import StepLoop
from llmexp.record.what_ran import WhatRan
from llmexp.training.config import PrecisionConfig

# Of the factor, after a step with overflow and after a window of steps without.
BACKOFF, GROWTH = 0.5, 2.0
SMALLEST = 1.0


@runtime_checkable
class ScalesLoss(Protocol):
    """An engine that may scale its losses, and tells what became of each step."""

    def scaled_step(self) -> tuple[float, bool] | None:
        """Return the factor of the last step's losses, and whether its update was skipped; None without a factor."""


class LossScale:
    """A factor that falls after a step whose gradients overflow, and rises after steps without (arXiv 1710.03740)."""

    def __init__(self, precision: PrecisionConfig) -> None:
        self.factor = 2.0**precision.initial_scale_power
        self.last: tuple[float, bool] | None = None
        self._window, self._finite_steps = precision.scale_window, 0

    def overflows(self, norm: torch.Tensor) -> bool:
        """Tell whether gradients of this norm overflowed, and set the next step's factor; the host waits for it."""
        overflowed = not bool(torch.isfinite(norm))
        self.last = self.factor, overflowed
        self._finite_steps = 0 if overflowed else self._finite_steps + 1
        if overflowed:
            self.factor = max(SMALLEST, self.factor * BACKOFF)
        elif self._finite_steps == self._window:
            self.factor, self._finite_steps = self.factor * GROWTH, 0
        return overflowed


def run_until_updated(loop: StepLoop, batches: Iterator[Sequence[MicroBatch]], steps: range) -> int:
    """Take these steps of the warm-up until one has updated parameters, and return how many those after the first are.

    Raises ConfigError where none has: what a step does and holds would be unknown.
    """
    taken = 0
    while (last := loop.updates and loop.updates.scaled_step()) and last[1]:
        if taken == len(steps):
            raise ConfigError(
                f"gradients overflowed in all {taken + 1} steps of the warm-up, the last time with the loss times "
                f"{last[0]:g}: set a smaller precision.initial_scale_power, or more measure.warmup_steps"
            )
        loop.run(batches, steps[taken : taken + 1], warmup=True)
        taken += 1
    return taken


def scale_that_ran(engine: object) -> WhatRan:
    """Say, for what_ran, the factor of the last step's losses where an engine scales them."""
    last = engine.scaled_step() if isinstance(engine, ScalesLoss) else None
    return {"loss_scale": last[0]} if last else {}
