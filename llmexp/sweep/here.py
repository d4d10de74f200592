"""Runs that this process measures on this machine."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence

from llmexp.errors import LlmexpError
from llmexp.plan.detect import detect
from llmexp.record.plan import RunPlan
from llmexp.sweep.concurrent_runs import run_all, worth_it
from llmexp.sweep.measuring import folder_of, joined, measure
from llmexp.sweep.share import settle


class RunsHere:
    """Measures one run after the other, or several at a time where they leave GPUs free."""

    def __init__(self, began: str) -> None:
        """`began` is the sweep's start in ISO 8601; runs that other drivers end later are not measured again."""
        self._began = began

    def run(self, plans: Sequence[RunPlan]) -> Sequence[bool] | None:
        """Measure the plans; None on every machine but a run's first, which has then done what the first one asked."""
        if any(joined(plan) for plan in plans):
            return None
        devices = detect().device_ids
        if worth_it(plans, devices):
            return run_all(plans, devices)
        return settle(
            [folder_of(plan) for plan in plans], lambda places: [self._attempt(plans[place]) for place in places]
        )

    def _attempt(self, plan: RunPlan) -> bool | None:
        """Measure one plan and say whether that met no error; None where another driver holds the run.

        An error is printed at once.
        """
        try:
            return measure(plan, folder_of(plan), self._began) or None
        except LlmexpError as error:
            print(f"llmexp: {error}", file=sys.stderr)
        except Exception:  # the sweep's edge
            traceback.print_exc()
        return False
