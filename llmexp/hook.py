"""What a training program of yours says to llmexp with engine=script: one line after each step. Anywhere else it does nothing.

from llmexp import hook
...
hook.model(model)          # once, if its MFU is wanted
...
hook.step(tokens=input_ids.numel(), loss=loss)
"""

from __future__ import annotations

from typing import Any, Protocol


class Listener(Protocol):
    """Who hears of it, in a process that is measured."""

    def step(self, positions: int, loss: Any) -> None:
        """A step is complete."""

    def model(self, module: Any) -> None:
        """What is trained."""


_listener: Listener | None = None


def step(tokens: int, loss: Any) -> None:
    """Say that a step is complete, the optimizer's update included.

    `tokens`: positions that this rank's replica computed in it, padding included; `loss`: a number or a scalar tensor, which is not waited for.
    The program ends here once all steps are measured.
    """
    if _listener:
        _listener.step(tokens, loss)


def model(module: Any) -> None:
    """Say which whole module is trained, before its first pass: where size and dtype are the configuration's, the run has an MFU."""
    if _listener:
        _listener.model(module)


def is_heard() -> bool:
    """Whether llmexp measures this process."""
    return _listener is not None


def connect(listener: Listener) -> None:
    """Let `listener` hear of every step in this process."""
    global _listener
    _listener = listener
