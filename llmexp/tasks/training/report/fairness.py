"""Checks whether runs that were configured for the same training on different engines or layouts did the same.

Their losses and what ran are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from math import inf, isnan
from statistics import fmean
from typing import Any, Literal

from llmexp.errors import RecordError
from llmexp.record.reading import read_text
from llmexp.record.samples import StepSample, TrainingSummary, read_samples
from llmexp.schema import TrainingConfig
from llmexp.tasks.training.report.programs import engine_names
from llmexp.tasks.training.report.row import TrainingRow

# Later steps amplify differences of rounding.
COMPARED_STEPS = 10
# The tolerance of the loss between two orders of summation, as a share, by the parameters' dtype.
SAME_WITHIN = {"fp32": 1e-4, "bf16": 2e-2}
# The tolerated factor between the first step's largest updates: bf16 parameters change in steps of their own size, and
# ranks sample different elements.
UPDATES_WITHIN = 4.0
# The tolerated factor between the first step's gradient norms: bf16 rounds them, and embeddings tied across two stages
# count twice. Gradients that are summed instead of averaged are off by the number of ranks or passes.
GRADIENTS_WITHIN = 1.25
# These settings do not change the training: who computes an update, what is saved, and why a precision was chosen.
_NO_TRAINING = {
    ("optimizer", "implementation"),
    ("adapter", "save"),
    ("model", "save"),
    ("precision", "chosen_because"),
}
# These may differ without changing the training, and they explain speeds.
EXPLAINS = ("attention_kernel", "reduced_in")


def fairness(rows: Iterable[TrainingRow]) -> list[str]:
    """Say which layouts trained the same.

    There is one line for each pair of layouts that agree, over all methods, and one for each method where a pair does
    not, or where nobody can tell.
    """
    agreed: dict[tuple[str, str], list[tuple[str, float]]] = {}
    lines, known = [], tuple(rows)
    engines = engine_names(known)
    for first, other in _pairs(known):
        names, share = (_layout(first, engines), _layout(other, engines)), _difference(first, other)
        differing, doubt = _asked_otherwise(first, other), _doubt(first, other)
        if differing:
            lines.append(
                f"not asked for the same training: {names[0]} and {names[1]} with {first.method}, by {differing}"
            )
        elif share is None:
            continue
        elif share > SAME_WITHIN[first.plan.config.precision.parameters]:
            lines.append(
                f"not the same training: the losses of {names[1]} are up to {share:.2%} from those of "
                f"{names[0]} with {first.method}, "
                f"in the first steps, {COMPARED_STEPS} at most: their speeds do not compare"
            )
        elif doubt:
            lines.append(f"{doubt} on {names[0]} and {names[1]} with {first.method}")
        else:
            agreed.setdefault(names, []).append((first.method + _explanation(first, other), share))
    for (one, another), methods in agreed.items():
        largest = max(share for _, share in methods)
        listed, within = (
            ", ".join(method for method, _ in methods),
            f"within {largest:.1e} of each other, first gradients and updates of one size",
        )
        lines.append(
            f"the same training on {one} and {another}: losses of the first steps, {COMPARED_STEPS} at most, "
            f"{within} ({listed})"
        )
    return lines


def _pairs(rows: Iterable[TrainingRow]) -> Iterator[tuple[TrainingRow, TrainingRow]]:
    """Yield each measured run with the first run of the same work on another layout."""
    firsts: dict[tuple[Any, ...], TrainingRow] = {}
    for row in rows:
        if row.rate is None:
            continue
        first = firsts.setdefault(_step(row), row)
        if _work(first) != _work(row):
            yield first, row


def _step(row: TrainingRow) -> tuple[Any, ...]:
    """Return what a step computes, without the settings that it learns by."""
    config = row.plan.config
    named = (config.task.name, config.model.name, config.precision.name, config.data.name)
    return (row.method, *named, config.seed, row.batch.global_, row.seq_len)


def _asked_otherwise(first: TrainingRow, other: TrainingRow) -> str:
    """Return the settings that differ, with both values, or an empty string.

    They are settings of optimizer, data, model, precision and adapter.
    """
    ours, theirs = (_settings(row.plan.config) for row in (first, other))
    differing = [key for key in dict.fromkeys([*ours, *theirs]) if ours.get(key) != theirs.get(key)]
    return ", ".join(f"{key} {ours.get(key)} and {theirs.get(key)}" for key in differing)


def _settings(config: TrainingConfig) -> dict[str, Any]:
    sections = config.model_dump(mode="json", include={"optimizer", "data", "model", "precision", "adapter"})
    return {
        f"{section}.{key}": value
        for section, values in sections.items()
        for key, value in values.items()
        if (section, key) not in _NO_TRAINING
    }


def _doubt(first: TrainingRow, other: TrainingRow) -> str:
    """Say why equal losses do not prove equal training; empty where both recorded updates and gradients of one size."""
    ours, theirs = (_first_step(row, "largest_update") for row in (first, other))
    if ours is None or theirs is None:
        return (
            "cannot tell whether the same training: losses agree, as they may without any update, and no update "
            "was recorded"
        )
    if not ours and not theirs:
        return "cannot tell whether the same training: the first step changed no parameter"
    if max(ours, theirs) > UPDATES_WITHIN * min(ours, theirs):
        return f"not the same training: the first step changes a parameter by {ours:.2g} and {theirs:.2g} at most"
    ours, theirs = (_first_step(row, "gradient_norm") for row in (first, other))
    if ours is not None and theirs is not None and max(ours, theirs) > GRADIENTS_WITHIN * min(ours, theirs):
        return f"not the same training: the first step's gradients have norms of {ours:.3g} and {theirs:.3g}"
    return ""


def _first_step(row: TrainingRow, quantity: Literal["largest_update", "gradient_norm"]) -> float | None:
    """Return the largest value over all ranks of the first repeat; None where a rank did not record it."""
    paths = [row.folder.repeat(0) / f"rank.{rank}.json" for rank in range(row.processes)]
    try:
        found = [getattr(TrainingSummary.model_validate_json(read_text(path)), quantity) for path in paths]
    except (OSError, ValueError):
        return None
    known = [each for each in found if each is not None]
    return max(known) if len(known) == len(found) else None


def _work(row: TrainingRow) -> tuple[Any, ...]:
    return row.work["engine"], row.plan.dims.dp, row.layout


def _layout(row: TrainingRow, engines: Mapping[str, str]) -> str:
    """Return the engine's name in the table and the degrees that are not 1."""
    dp = row.plan.dims.dp
    return " ".join(filter(None, [engines[row.id], f"dp {dp}" * (dp > 1), row.layout]))


def _difference(first: TrainingRow, other: TrainingRow) -> float | None:
    """Return the largest difference between the losses of a step as a share of the first run's.

    It is None where either run has no losses that can be read.
    """
    try:
        pairs = list(zip(_losses(first), _losses(other), strict=False))
    except (OSError, RecordError, ValueError):
        return None
    return max((_apart(*pair) for pair in pairs), default=None)


def _apart(loss: float, other: float) -> float:
    """Return the difference as a share of the first loss; NaN is infinitely far from any number."""
    if isnan(loss) or isnan(other):
        return 0.0 if isnan(loss) and isnan(other) else inf
    return abs(loss - other) / abs(loss) if loss else abs(other)


def _losses(row: TrainingRow) -> Sequence[float]:
    """Return the mean loss over ranks of each of the first repeat's first steps, warm-up included."""
    repeat = row.folder.repeat(0)
    by_rank = [
        islice(read_samples(repeat / f"samples.{rank}.jsonl", StepSample), COMPARED_STEPS)
        for rank in range(row.processes)
    ]
    return [fmean(sample.loss for sample in step) for step in zip(*by_rank, strict=False)]


def _explanation(first: TrainingRow, other: TrainingRow) -> str:
    one, another = (row.result.what_ran if row.result else {} for row in (first, other))
    told = [(name, one.get(name), another.get(name)) for name in EXPLAINS]
    differing = [
        f"{name.replace('_', ' ')} {ours} and {theirs}"
        for name, ours, theirs in told
        if ours and theirs and ours != theirs
    ]
    return f" with {', '.join(differing)}" if differing else ""
