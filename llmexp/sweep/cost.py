"""The expected cost of a sweep before it starts.

It comes from earlier runs in the outputs folder, else from published rates, else from the rates at which requests
are sent or the limits of a microbenchmark's points, else from a pilot, else from a prediction, else from the devices'
peak FLOP/s, which the run cannot exceed; otherwise it is unknown.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from llmexp.errors import RecordError
from llmexp.launch.preflight import certain_skip
from llmexp.record.duration import duration
from llmexp.record.folder import RunFolder, find_runs
from llmexp.record.index import RunOverview, duration_key, overviews
from llmexp.record.plan import RunPlan
from llmexp.record.predicted import Prediction
from llmexp.record.result import RunStatus
from llmexp.registry import get_task, published_rate, published_speed, references
from llmexp.sweep.resume import why_again

# The time that an earlier run held its devices is evidence only where the run ended by itself.
_TELLING = (RunStatus.SUCCESS, RunStatus.OOM, RunStatus.TIMEOUT)
# Sources in the order of trust; published rates stand between the two, each by the name of its reference.
_RUNS = {
    "nothing": "{} answered or skipped already",
    "same": "{} by their own earlier time",
    "like": "{} by the time of similar runs",
    "duration": "{} by measure.duration_s, start-up left out",
}
_GUESSES = {
    "pilot": "{} by steps measured just now",
    "requests": "{} by requests measured just now",
    "flops": "{} as if at the FLOP/s of these steps",
    "rates": "{} by their request rates, start-up left out",
    "limits": "{} by the limits of their points, start-up left out",
    "predicted": "{} by prediction, start-up left out",
    "peak": "{} by their FLOPs at the devices' peak",
    "unknown": "{} unknown",
}
# Sources that leave out what cannot be known before: a method's communication and offload, a server's queue.
_AT_LEAST = {"duration", "flops", "rates", "peak"}
# Points of quick calls end long before their limits; a pilot's load has a begin and an end like a longer one's.
_AT_MOST = {"limits", "requests"}
# Sources that a pilot replaces.
UNMEASURED = {"unknown", "peak", "predicted"}
# Less than this at the devices' peak would say nothing of a run whose processes take longer to start.
LEAST_S = 60.0


@dataclass(frozen=True)
class Speed:
    """The rate that a device is expected to have, in the plan's unit, and who says so."""

    per_device: float
    by: str
    elsewhere: bool = False
    """Tell whether it was published of another batch, length or number of devices, which `by` names."""
    is_own: bool = False
    """Tell whether this very run was measured before."""


@dataclass(frozen=True)
class Cost:
    """The time that a run will hold its devices, None where it is unknown, and its source.

    The source is a key of _RUNS or _GUESSES, or the name of a reference.
    """

    plan: RunPlan
    held_s: float | None
    source: str
    speed: Speed | None = None

    @property
    def device_hours(self) -> float | None:
        """Device-hours of all devices together; on cpu a rank counts as a device."""
        return None if self.held_s is None else self.held_s * self.plan.devices / 3600

    @property
    def sign(self) -> str:
        """The sign before a time that is known from one side only, or an empty string."""
        return "≥ " * (self.source in _AT_LEAST) + "≤ " * (self.source in _AT_MOST)

    @property
    def usd(self) -> float | None:
        """Cost at the hardware's price; None too where the hardware has no price, unless the run costs nothing."""
        price = self.plan.config.hardware.price_per_device_hour_usd
        if self.device_hours is None or (price is None and self.device_hours):
            return None
        return self.device_hours * (price or 0.0)


@dataclass
class _History:
    """The times that earlier runs held their devices, by id, and the successful runs, by the kind of their work."""

    held_s: dict[str, list[float]] = field(default_factory=dict)
    like: dict[str, list[RunOverview]] = field(default_factory=dict)

    def nearest(self, plan: RunPlan) -> RunOverview | None:
        """Return the run of the same kind whose samples have the nearest amount of work, best the very same run."""
        like = self.like.get(duration_key(plan)) if plan.amount else None

        def distance(run: RunOverview) -> tuple[float, bool]:
            return max(run.amount / plan.amount, plan.amount / run.amount), run.id != plan.id

        return min(like, key=distance) if like else None


def costs_of(plans: Sequence[RunPlan], folders: Sequence[RunFolder]) -> list[Cost]:
    """Return the cost of each plan; `folders` gives each plan's folder in the same order."""
    history = _read_history(Path(plans[0].config.sweep.outputs))
    return [
        Cost(plan, *_held_s(plan, folder, history), _speed(plan, history))
        for plan, folder in zip(plans, folders, strict=True)
    ]


def cost_line(costs: Sequence[Cost]) -> str:
    """Describe the cost: runs to measure, their time on devices, money, the longest run, and the sources.

    Money is given only where each of those runs has a price.
    """
    sources = Counter(cost.source for cost in costs)
    if sources["nothing"] == len(costs):
        return "expected cost: none, every run already has an answer or is skipped"
    known = [cost for cost in costs if cost.held_s]
    if not known:
        return (
            f"expected cost: unknown, nothing like {'these runs' if len(costs) > 1 else 'this run'} "
            "has been measured in the outputs folder yet"
        )
    bound = _bound({cost.source for cost in known})
    longest = max(known, key=lambda cost: cost.held_s or 0.0)
    prices = [cost.usd for cost in known]
    money = f", {sum(map(float, filter(None, prices))):.2f} USD" if None not in prices else ""
    of_known = f"{len(known)} of {len(costs)} runs" if len(costs) > 1 else "1 run"
    told = ", ".join(text.format(sources[source]) for source, text in _words(costs).items() if sources[source])
    longest_of_several = f"; longest {longest.plan.name}, {duration(longest.held_s or 0.0)}" * (len(costs) > 1)
    hours = sum(cost.device_hours or 0.0 for cost in known)
    in_all = f", {hours:,.1f} device-hours" * (hours >= 1)
    return f"expected cost: {of_known}: {bound}{time_on_devices(known)}{in_all}{money}{longest_of_several} ({told})"


def _bound(sources: Collection[str]) -> str:
    """Say whether runs with costs from these sources take more or less time than expected, where that is known."""
    at_least, at_most = _AT_LEAST & set(sources), _AT_MOST & set(sources)
    # Runs at their peak are several times as fast as runs are, and the others are not so far from what they say.
    if at_least and at_most and "peak" not in sources:
        return "about "
    if at_least:
        return "at least "
    return "at most about " * bool(at_most)


def _words(costs: Sequence[Cost]) -> dict[str, str]:
    """Return the words of each source, in the order of trust."""
    units = {cost.source: cost.plan.rate_unit for cost in costs}
    published = {
        each.name: f"{{}} by {each.title}'s {units[each.name]}, start-up left out"
        for each in references()
        if each.name in units
    }
    return _RUNS | published | _GUESSES


def time_on_devices(costs: Sequence[Cost]) -> str:
    """Say how long runs hold how many devices, one run after the other.

    Runs that take no time, or an unknown one, are left out.
    """
    held_s: dict[int, float] = defaultdict(float)
    for cost in costs:
        held_s[cost.plan.devices] += cost.held_s or 0.0
    return " and ".join(
        f"{duration(time_s)} on {devices} device{'s' * (devices > 1)}"
        for devices, time_s in sorted(held_s.items())
        if time_s
    )


def _read_history(outputs: Path) -> _History:
    history = _History()
    for standing in overviews(find_runs(outputs)):
        if standing.state in _TELLING and standing.held_s:
            history.held_s.setdefault(standing.id, []).append(standing.held_s)
        if (
            standing.state == RunStatus.SUCCESS
            and standing.held_s
            and standing.repeats
            and (standing.rate or 0) > 0
            and standing.amount
        ):
            history.like.setdefault(standing.duration_key, []).append(standing)
    return history


def _held_s(plan: RunPlan, folder: RunFolder, history: _History) -> tuple[float | None, str]:
    if certain_skip(plan) or _is_kept(plan, folder):
        return 0.0, "nothing"
    if plan.id in history.held_s:
        return fmean(history.held_s[plan.id]), "same"
    if plan.asked_s:
        return plan.config.measure.repeats * plan.asked_s, "duration"
    if nearest := history.nearest(plan):
        return _held_like_s(nearest, plan), "like"
    # Of a batch that is searched for, the work is not known before.
    if (published := published_rate(plan)) and plan.amount:
        rate, name = published
        return work_of(plan) / rate, name
    for each_s, source in ((plan.load_s, "rates"), (plan.limit_s, "limits")):
        if each_s:
            return plan.config.measure.repeats * each_s, source
    if plan.predicted and plan.samples and not get_task(plan.config.task.name).may_end_early(plan):
        return _predicted_s(plan, plan.predicted), "predicted"
    at_least_s = _at_peak_s(plan)
    return (at_least_s, "peak") if at_least_s >= LEAST_S else (None, "unknown")


def _predicted_s(plan: RunPlan, predicted: Prediction) -> float:
    if predicted.work_s is None:
        return work_of(plan) / predicted.rate
    return plan.config.measure.repeats * predicted.work_s


def _at_peak_s(plan: RunPlan) -> float:
    """Return the seconds that a run takes with its devices at their peak.

    0 where that is not known, where the run may end early, and under a budget, which is not kept by the least time.
    """
    may_end_early = get_task(plan.config.task.name).may_end_early(plan)
    if plan.peak_flops_per_s is None or plan.config.budget.limits or may_end_early:
        return 0.0
    return least_s(plan, plan.peak_flops_per_s)


def _speed(plan: RunPlan, history: _History) -> Speed | None:
    """Return the speed of the nearest run, else of the nearest published one, which may have other devices."""
    if nearest := history.nearest(plan):
        outputs, is_same = plan.config.sweep.outputs, nearest.id == plan.id
        said = f"this run before in {outputs}" if is_same else f"a run like it in {outputs}, of the nearest batch"
        return Speed((nearest.rate or 0.0) / plan.devices, said, is_own=is_same)
    published = published_speed(plan)
    return Speed(*published, elsewhere=published_rate(plan) is None) if published else None


def _is_kept(plan: RunPlan, folder: RunFolder) -> bool:
    """Say whether the folder has the answer, so that nothing will be measured."""
    from llmexp.launch.stack import stack_digest

    with suppress(RecordError):
        earlier = folder.result()
        return earlier is not None and why_again(plan, folder, earlier, stack_digest(plan)) is None
    return False


def _held_like_s(run: RunOverview, plan: RunPlan) -> float:
    """Return one start-up for each repeat, plus all samples at the earlier run's rate, in seconds."""
    rate = run.rate or 0.0
    startup_s = max(0.0, (run.held_s or 0.0) / run.repeats - (run.warmup_samples + run.samples) * run.amount / rate)
    return plan.config.measure.repeats * startup_s + work_of(plan) / rate


def least_s(plan: RunPlan, peak_flops_per_s: float) -> float:
    """Return the seconds that a run computes if its devices are at this peak; 0 where its FLOPs are not known."""
    return plan.config.measure.repeats * (plan.least_flops or 0.0) / (plan.devices * peak_flops_per_s)


def work_of(plan: RunPlan) -> float:
    """Return the amount of work of all samples of all repeats."""
    return plan.config.measure.repeats * plan.samples * plan.amount
