"""The one way in which plans are measured, wherever that is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from llmexp.record.plan import RunPlan


class Runner(Protocol):
    """Whoever measures the plans of a sweep."""

    def run(self, plans: Sequence[RunPlan]) -> Sequence[bool] | None:
        """Measure those without an answer and say of each plan whether that met no error of its own; None where they go on without this process."""
