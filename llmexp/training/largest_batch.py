"""The search of batch.micro=max: which short run it needs next, what its trials decide, and their account."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llmexp.record.result import PointVerdict, ResultPoint, RunResult, RunStatus
from llmexp.schema.section import MAX
from llmexp.tasks.resolve import resolve
from llmexp.training.analysis.batch_search import BatchSearch, LargestBatch, Probe
from llmexp.training.config.run import FIT_TRIES, BatchConfig
from llmexp.training.plan.fit import largest_micro
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.short_run import shortened

# The optimizer's states come with the first step and the allocator's peak with the second; the others tell the speed.
TRIAL_WARMUP_STEPS, TRIAL_STEPS = 2, 5
FITS = "fits"
BATCH = "batch_micro"
# What the account of a trial keeps of its metrics.
_KEPT = ("tokens_per_s", "peak_allocated_bytes", "peak_reserved_bytes", "peak_device_used_bytes", "peak_rss_bytes")


def next_trial(plan: TrainingPlan, trials: Sequence[RunResult]) -> TrainingPlan | None:
    """Return the short run that the search needs next; None where the batch is known, or is not searched for."""
    if not plan.config.batch.is_searched:
        return None
    step = _step(plan, trials)
    return None if isinstance(step, LargestBatch) else _trial(plan, step, len(trials))


def settled(plan: TrainingPlan, trials: Sequence[RunResult]) -> TrainingPlan:
    """Return the plan with the batch that the trials found, or with 1 where not even that fitted.

    The id and the configuration are still those of batch.micro=max. An unfinished search leaves the plan as it is.
    """
    if not plan.config.batch.is_searched:
        return plan
    step = _step(plan, trials)
    return with_batch(plan, step.micro or 1) if isinstance(step, LargestBatch) else plan


def with_batch(plan: TrainingPlan, micro: int) -> TrainingPlan:
    """Return the plan of a search with the batch that it found."""
    found = _of_batch(plan, micro)
    kept = {name: getattr(plan, name) for name in ("id", "overrides", "label", "skip")}
    config = found.config.model_copy(update={"batch": plan.config.batch})
    return found.model_copy(update=kept | {"config": config})


def points_of(trials: Sequence[RunResult]) -> list[ResultPoint]:
    """Return each trial's batch, speed and memory, and whether it fitted, in the order of the search."""
    return [
        ResultPoint(
            params={BATCH: trial.batch.micro},
            metrics={name: metric for name in _KEPT if (metric := trial.metrics.get(name))},
            problem=trial.reason if trial.status is not RunStatus.SUCCESS else "",
            verdicts={FITS: PointVerdict(answer="yes" if trial.status is RunStatus.SUCCESS else "no")},
        )
        for trial in trials
        if trial.batch
    ]


def has_ended(batch: BatchConfig, points: Sequence[ResultPoint]) -> bool:
    """Tell from the account of a search's trials whether they led to an answer."""
    probes = [(point.params[BATCH], point.verdicts[FITS].answer == "yes") for point in points]
    return isinstance(search_of(batch).step(probes), LargestBatch)


def search_of(batch: BatchConfig, first: int = 1) -> BatchSearch:
    """Return the search that the configuration asks for, begun at `first` samples a rank."""
    return BatchSearch(first, batch.search, batch.largest, batch.fits, FIT_TRIES)


def first_batch(plan: TrainingPlan) -> int:
    """Return the samples a rank of the first trial, where arithmetic says that the search ends; 1 for unknown sizes."""
    return largest_micro(plan) or 1


def _step(plan: TrainingPlan, trials: Sequence[RunResult]) -> int | LargestBatch:
    probes = list(_probes(plan, trials))
    step = search_of(plan.config.batch, first_batch(plan)).step(probes)
    half = (step.micro or 0) // 2 if isinstance(step, LargestBatch) else 0
    # What the last doubling brought shows whether a larger batch would pay.
    return half if half and not any(fitted and micro <= half for micro, fitted in probes) else step


def _probes(plan: TrainingPlan, trials: Sequence[RunResult]) -> Iterator[Probe]:
    """Yield what the trials say; the run itself, once it was out of memory, outweighs the short runs that fitted."""
    for trial in trials:
        if trial.batch:
            weight = FIT_TRIES if trial.id == plan.id else 1
            yield from [(trial.batch.micro, trial.status is RunStatus.SUCCESS)] * weight


def _trial(plan: TrainingPlan, micro: int, number: int) -> TrainingPlan:
    made = _of_batch(plan, micro)
    found = resolve(shortened(made.config, TRIAL_WARMUP_STEPS, TRIAL_STEPS), _words(plan, micro))
    assert isinstance(found, TrainingPlan)
    asked_for = " ".join(word for word in plan.label.split() if word != f"batch.micro={MAX}")
    label = f"{asked_for} trial {number + 1}, batch {micro}".strip()
    return found.model_copy(update={"label": label})


def _of_batch(plan: TrainingPlan, micro: int) -> TrainingPlan:
    """Return the same run with this batch, a run of its own."""
    batch = plan.config.batch.model_copy(update={"micro": micro})
    made = resolve(plan.config.model_copy(update={"batch": batch}), _words(plan, micro))
    assert isinstance(made, TrainingPlan)
    return made


def _words(plan: TrainingPlan, micro: int) -> list[str]:
    """Return the words of the command that measures the run with this batch."""
    return [
        *(word for word in plan.overrides if not word.lstrip("+").startswith("batch.micro=")),
        f"batch.micro={micro}",
    ]
