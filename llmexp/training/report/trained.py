"""Reads what a training run did from the files of its first repeat."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, TypeVar

from llmexp.method import Techniques
from llmexp.record.flat import flat
from llmexp.record.folder import RunFolder
from llmexp.record.reading import LONGEST_LINES_BYTES, read_text
from llmexp.record.samples import StepSample, TrainingSummary, digest_text
from llmexp.record.what_ran import WhatRan
from llmexp.schema import Section
from llmexp.training.plan.rate_schedule import has_schedule, scheduled_steps
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.trained_run import TrainedRun

# Later steps amplify differences of rounding.
COMPARED_STEPS = 10
# These settings do not change the training: who computes an update, what is saved, and why a precision was chosen.
_NO_TRAINING = (
    "optimizer.implementation",
    "adapter.save",
    "model.save",
    "precision.chosen_because",
    "precision.name",
)
T = TypeVar("T")
_SECTIONS = ("optimizer", "data", "model", "precision", "adapter")
# Sections by their identity, which is theirs alone as long as they are kept here.
_READ: dict[int, tuple[Section, dict[str, str]]] = {}
_MOST_READ = 1024


def read_trained(plan: TrainingPlan, folder: RunFolder, what_ran: WhatRan, asked: dict[str, str]) -> TrainedRun:
    """Return what a run that was measured did, as far as its files can be read; `asked` is by `asked_training`."""
    repeat, ranks = folder.repeat(0), range(plan.processes)
    steps = list(zip(*_read(_first_steps, [repeat / f"samples.{rank}.jsonl" for rank in ranks]), strict=False))
    summaries = _read(_summary, [repeat / f"rank.{rank}.json" for rank in ranks])
    return TrainedRun.model_construct(  # checked, the settings of thousands of runs would not be shared
        requested=asked,
        parameters_in=plan.config.precision.parameters,
        losses=[fmean(sample.loss for sample in step) for step in steps],
        sequences=_sequences(plan, steps),
        products_in=what_ran.get("products_in"),
        gradient_norm=_largest(summaries, "gradient_norm"),
        largest_update=_largest(summaries, "largest_update"),
        draws=_draws(plan),
    )


def _read(kind: Callable[[Path], T], paths: Sequence[Path]) -> list[T]:
    """Read all files, or none where one of them cannot be read."""
    try:
        return [kind(path) for path in paths]
    except (OSError, ValueError):
        return []


def asked_training(plan: TrainingPlan) -> dict[str, str]:
    """Return the settings that decide what is learned, whatever engine, layout or equivalent method does it.

    They are in the order of their names, and one object where they are equal.
    """
    kept = {"seed": str(plan.config.seed)}
    for name in _SECTIONS:
        kept |= _settings_of(name, getattr(plan.config, name))
    changes = changes_of_training(plan.techniques)
    if not plan.techniques.adapter:
        kept = {key: value for key, value in kept.items() if not key.startswith("adapter.")}
    found = kept | flat({"task": plan.config.task.name, "batch.global": plan.batch.global_} | changes | _order(plan))
    return _shared(tuple(sorted(found.items())))


def _settings_of(name: str, section: Section) -> dict[str, str]:
    """Return a section's settings by key; runs of a sweep share most sections, which are read once."""
    known = _READ.get(id(section))
    if known is None or known[0] is not section:
        if len(_READ) == _MOST_READ:
            _READ.clear()
        settings = flat({name: section.model_dump(mode="json")})
        known = section, {key: value for key, value in settings.items() if key not in _NO_TRAINING}
        _READ[id(section)] = known
    return known[1]


@lru_cache(1024)
def _shared(settings: tuple[tuple[str, str], ...]) -> dict[str, str]:
    return dict(settings)


def _order(plan: TrainingPlan) -> dict[str, Any]:
    """Return those numbers of the protocol that the sequences' order and lengths, or learning rates, depend on."""
    protocol = plan.config.measure
    tokens = {"measure.tokens": protocol.tokens} if protocol.tokens else {}
    steps = {"measure.steps": protocol.steps, "measure.warmup_steps": protocol.warmup_steps}
    config = plan.config
    rates = {"optimizer.total_steps": scheduled_steps(config)} if has_schedule(config.optimizer) else {}
    return tokens | rates | (steps if plan.config.data.seq_len_schedule else {})


def changes_of_training(techniques: Techniques) -> dict[str, Any]:
    """Return those switches of a method that change what is learned; all others change only how it is computed."""
    names = ("adapter", "quantization", "extra")
    return {name: value for name in names if (value := getattr(techniques, name))}


def _first_steps(path: Path) -> list[StepSample]:
    """Read the first steps of a rank; the file may have thousands. Raises OSError and ValueError."""
    lines = read_text(path, LONGEST_LINES_BYTES).split("\n", COMPARED_STEPS)[:COMPARED_STEPS]
    return [StepSample.model_validate_json(line) for line in lines if line]


def _summary(path: Path) -> TrainingSummary:
    return TrainingSummary.model_validate_json(read_text(path))


def _sequences(plan: TrainingPlan, steps: Sequence[Sequence[StepSample]]) -> list[str]:
    """Add up the digests of each step's replicas; all ranks of one replica read the same."""
    first_of_replica = {plan.dims.replica_of(rank): rank for rank in reversed(range(plan.processes))}
    found = []
    for step in steps:
        digests = [digest for rank in first_of_replica.values() if (digest := step[rank].sequences)]
        if len(digests) < len(first_of_replica):
            break
        found.append(added(digests))
    return found


def added(digests: Iterable[str]) -> str:
    """Return the digest of all sequences of several ranks."""
    return digest_text(sum(int(digest, 16) for digest in digests))


def _largest(
    summaries: Sequence[TrainingSummary], quantity: Literal["largest_update", "gradient_norm"]
) -> float | None:
    """Return the largest value over all ranks; None where a rank did not record it."""
    known = [found for summary in summaries if (found := getattr(summary, quantity)) is not None]
    return max(known) if known and len(known) == len(summaries) else None


def _draws(plan: TrainingPlan) -> str:
    adapter, dropout = plan.techniques.adapter, plan.config.adapter.dropout
    return f"adapter.dropout={dropout:g} draws at random" if adapter == "lora" and dropout else ""
