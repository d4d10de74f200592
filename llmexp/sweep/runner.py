"""The interface through which a sweep measures its plans, on any machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from llmexp.record.plan import RunPlan


class Runner(Protocol):
    """An object that measures the plans of a sweep."""

    measures_here: bool
    """Tell whether the runs are measured on this machine, one after the other."""

    def run(self, plans: Sequence[RunPlan]) -> Sequence[bool] | None:
        """Measure the plans without an answer and say of each plan whether it met no error of its own.

        Returns None where the runs go on without this process.
        """
