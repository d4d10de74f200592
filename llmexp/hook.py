"""What a training program of yours says to llmexp with engine=script: one line after each step. Anywhere else it does nothing.

from llmexp import hook
...
hook.step(tokens=input_ids.numel(), loss=loss)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_report: Callable[[int, Any], None] | None = None


def step(tokens: int, loss: Any) -> None:
    """Say that a step is complete, the optimizer's update included.

    `tokens`: positions that this rank's replica computed in it, padding included; `loss`: a number or a scalar tensor, which is not waited for.
    The program ends here once all steps are measured.
    """
    if _report:
        _report(tokens, loss)


def connect(report: Callable[[int, Any], None]) -> None:
    """Let `report` hear of every step in this process."""
    global _report
    _report = report
