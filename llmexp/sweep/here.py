"""Runs that this process measures on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from llmexp.launch.detect import detect
from llmexp.record.plan import RunPlan
from llmexp.sweep.concurrent_runs import run_all, worth_it
from llmexp.sweep.interleaved import measure_in_turns
from llmexp.sweep.levels import levels
from llmexp.sweep.measuring import attempted, folder_of, joined, measure
from llmexp.sweep.share import settle


class RunsHere:
    """Measures one run after the other, or several at a time where they leave GPUs free.

    Runs come after those whose models they start from, and runs whose repeats are interleaved come last.
    """

    measures_here = True

    def __init__(self, began: str) -> None:
        """`began` is the sweep's start in ISO 8601; runs that other drivers end later are not measured again."""
        self._began = began

    def run(self, plans: Sequence[RunPlan]) -> Sequence[bool] | None:
        """Measure the plans; None on every machine but a run's first, which has then done what the first one asked."""
        if any(joined(plan) for plan in plans):
            return None
        whole = [plan for plan in plans if not plan.config.is_interleaved]
        in_turns = [plan for plan in plans if plan.config.is_interleaved]
        well: dict[str, bool] = {}
        for level in levels(whole):
            well |= zip((plan.id for plan in level), self._run_by_run(level), strict=True)
        well |= zip((plan.id for plan in in_turns), self._interleaved(in_turns), strict=True)
        return [well[plan.id] for plan in plans]

    def _run_by_run(self, plans: Sequence[RunPlan]) -> list[bool]:
        devices = detect().device_ids
        if worth_it(plans, devices):
            return run_all(plans, devices)
        return settle(
            [folder_of(plan) for plan in plans], lambda places: [self._attempt(plans[place]) for place in places]
        )

    def _interleaved(self, plans: Sequence[RunPlan]) -> list[bool]:
        return settle(
            [folder_of(plan) for plan in plans],
            lambda places: measure_in_turns([plans[place] for place in places], self._began),
        )

    def _attempt(self, plan: RunPlan) -> bool | None:
        """Measure one plan and say whether that met no error; None where another driver holds the run."""
        return attempted(partial(measure, plan, folder_of(plan), self._began))
