"""The hook by which your own training program reports its steps with engine=script, in one line after each step.

Without llmexp around it, the hook does nothing.

from llmexp import hook
...
hook.model(model)          # once, if its MFU is wanted
...
hook.step(tokens=input_ids.numel(), loss=loss)
"""

from __future__ import annotations

from typing import Any, Protocol


class Listener(Protocol):
    """The receiver of what a program reports, in a process that is measured."""

    def step(self, positions: int, loss: Any) -> None:
        """Take note that a step is complete."""

    def model(self, module: Any) -> None:
        """Take note of the module that is trained."""


_listener: Listener | None = None


def step(tokens: int, loss: Any) -> None:
    """Say that a step is complete, the optimizer's update included.

    `tokens` counts the positions that this rank's replica computed in the step, padding included.
    `loss` is a number or a scalar tensor; nothing waits for the tensor.
    The call ends the program once all steps are measured.
    """
    if _listener:
        _listener.step(tokens, loss)


def model(module: Any) -> None:
    """Say, before the first pass, which whole module is trained.

    The run has an MFU where the module's size and dtype are those of the configuration.
    """
    if _listener:
        _listener.model(module)


def is_heard() -> bool:
    """Tell whether llmexp measures this process."""
    return _listener is not None


def connect(listener: Listener) -> None:
    """Let `listener` hear of every step in this process."""
    global _listener
    _listener = listener
