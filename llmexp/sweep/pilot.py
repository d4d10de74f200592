"""A pilot: a few samples of one run, measured before a long sweep like which nothing has been measured yet.

They tell what the sweep will cost, which its budget needs to know, and the person in front of it.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from tempfile import mkdtemp

from llmexp.errors import LlmexpError
from llmexp.launch.display import say
from llmexp.launch.source import missing_model
from llmexp.record.folder import RunFolder
from llmexp.record.lock import living_holder
from llmexp.record.plan import RunPlan
from llmexp.record.result import RunStatus
from llmexp.registry import get_task
from llmexp.sweep.cost import LEAST_S, UNMEASURED, Cost, least_s

# A pilot starts ranks twice; a sweep that starts them less often has to compute for LEAST_S.
LEAST_STARTS = 8
# More than a rank of today's processors computes, where no peak of the hardware is known.
_CPU_FLOPS_PER_S = 1e12
# Runs that are out of memory, or fail, tell nothing; after so many the sweep starts without knowing.
_TRIES = 3
# Every run has a pilot where a sweep takes as many times as long as all of them.
_TIMES_AS_LONG = 10
_FOLDER = ".pilot"


@dataclass(frozen=True)
class Pace:
    """What a pilot tells: how long a plan's samples and the rest of a repeat take, and how long it took itself."""

    samples_s: Callable[[RunPlan], float]
    other_s: float
    took_s: float

    def held_s(self, plan: RunPlan, slower: float = 1.0) -> float:
        """Return the time that a run takes at this pace, its samples `slower` times as long, in seconds."""
        return plan.config.measure.repeats * (self.other_s + slower * self.samples_s(plan))


def _may_be_piloted(plan: RunPlan) -> bool:
    """Tell whether a pilot could start: not from the model of a run that has yet to make it."""
    return plan.config.sweep.pilot and missing_model(plan) is None


def piloted(costs: Sequence[Cost]) -> list[Cost]:
    """Return the costs, those that were unknown by pilots: as the run's own samples, or by the FLOPs of another's.

    A budget is not kept by the FLOPs of others: under one, every run has a pilot of its own.
    """
    limited = costs[0].plan.config.budget.limits
    unknown = [cost.plan for cost in costs if cost.source in UNMEASURED and _may_be_piloted(cost.plan)]
    pilots = [(plan, pilot) for plan in unknown if (pilot := get_task(plan.config.task.name).pilot(plan))]
    if limited:
        paces = {plan.id: _measured(pilot) for plan, pilot in pilots}
        return [_by_its_own(cost, paces.get(cost.plan.id)) for cost in costs]
    for index, (plan, pilot) in enumerate(pilots[:_TRIES] if _is_long(unknown) else ()):
        if pace := _measured(pilot):
            found = [_by(cost, plan, pace) for cost in costs]
            later = pilots[index + 1 :]
            if _expected_s(found) < _TIMES_AS_LONG * pace.took_s * len(later):
                return found
            paces = {other.id: _measured(pilot) for other, pilot in later}
            return [_by_its_own(cost, paces.get(cost.plan.id)) for cost in found]
    return list(costs)


def _is_long(plans: Sequence[RunPlan]) -> bool:
    starts = sum(plan.config.measure.repeats for plan in plans)
    return starts >= LEAST_STARTS or sum(map(_least_s, plans)) >= LEAST_S


def _least_s(plan: RunPlan) -> float:
    return least_s(plan, plan.peak_flops_per_s or _CPU_FLOPS_PER_S)


def _expected_s(costs: Sequence[Cost]) -> float:
    """Return how long all runs take, those that nothing is known of as long as the others on average."""
    known = [cost.held_s for cost in costs if cost.held_s is not None and cost.source not in UNMEASURED]
    return len(costs) * fmean(known) if known else 0.0


def _measured(pilot: RunPlan) -> Pace | None:
    """Measure the pilot and return its pace; None where it did not succeed."""
    from llmexp.launch.run import run_one

    say(f"{pilot.name} · a few {pilot.sample_name}s, to estimate what the sweep will cost")
    task, began_s = get_task(pilot.config.task.name), time.monotonic()
    # What it meets, the sweep's own runs will meet and say.
    with suppress(LlmexpError, OSError), _folder(pilot) as folder:
        result = run_one(pilot, folder)
        if result and result.status is RunStatus.SUCCESS and (own_s := task.samples_s(pilot, result)):
            other_s = max(0.0, result.turns[-1].seconds - own_s)
            return Pace(lambda plan: task.samples_s(plan, result), other_s, time.monotonic() - began_s)
    return None


@contextmanager
def _folder(pilot: RunPlan) -> Iterator[RunFolder]:
    """Make a run's folder that no listing of runs finds, where a container sees it too, and remove it afterwards."""
    root = pilot.folder.parent / _FOLDER
    root.mkdir(parents=True, exist_ok=True)
    for left in root.glob("*/*"):  # by a driver that was killed
        if living_holder(RunFolder(left).drivers) is None:
            shutil.rmtree(left.parent, ignore_errors=True)
    place = Path(mkdtemp(dir=root))
    try:
        yield RunFolder(place / pilot.folder_name)
    finally:
        shutil.rmtree(place, ignore_errors=True)
        with suppress(OSError):
            root.rmdir()


def _by(cost: Cost, piloted: RunPlan, pace: Pace) -> Cost:
    """Return a run's cost by the pilot of one of its sweep; unknown where the FLOPs of one of both are."""
    if cost.source not in UNMEASURED:
        return cost
    if cost.plan is piloted:
        return _by_its_own(cost, pace)
    flops, of_pilot = cost.plan.flops_per_amount, piloted.flops_per_amount
    if not flops or not of_pilot:
        return cost
    return replace(cost, held_s=pace.held_s(cost.plan, slower=flops / of_pilot), source="flops")


def _by_its_own(cost: Cost, pace: Pace | None) -> Cost:
    source = get_task(cost.plan.config.task.name).pilot_source
    return replace(cost, held_s=pace.held_s(cost.plan), source=source) if pace else cost
