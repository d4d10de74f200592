"""Checks whether runs that were configured for the same training did the same: on other engines, layouts or methods.

Their losses, gradients, sequences and products are compared, and what ran is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from llmexp.analysis.sameness import DIFFERENT, SAME, Sameness, asked_otherwise, same_training
from llmexp.training.report.programs import engine_names
from llmexp.training.report.row import TrainingRow
from llmexp.training.report.trained import COMPARED_STEPS, changes_of_training

# These may differ without changing the training, and they explain speeds.
EXPLAINS = ("attention_kernel", "reduced_in")


def fairness(rows: Iterable[TrainingRow]) -> list[str]:
    """Say which layouts trained the same.

    There is one line for each pair of layouts that agree, over all methods, and one for each pair of runs that do not,
    or of which nobody can tell.
    """
    agreed: dict[tuple[str, str], list[tuple[str, float]]] = {}
    known = [row for row in rows if row.rate]
    engines, lines = engine_names(known), []
    for first, other in _layouts(known):
        names = (_layout(first, engines), _layout(other, engines))
        if differing := _asked_otherwise(first, other):
            lines.append(
                f"not asked for the same training: {names[0]} and {names[1]} with {first.method}, by {differing}"
            )
        elif first.trained and other.trained and first.trained.losses and other.trained.losses:
            found = same_training(first.trained, other.trained)
            if found.answer == SAME and found.losses_apart is not None:
                agreed.setdefault(names, []).append((first.method + _explanation(first, other), found.losses_apart))
            else:
                lines.append(f"{_said(found)} on {names[0]} and {names[1]} with {first.method}")
    return [*lines, *_methods_apart(known, engines), *(_same(*pair) for pair in agreed.items())]


def _said(found: Sameness) -> str:
    if found.answer == DIFFERENT:
        return f"not the same training, so speeds cannot be compared: {found.reason}"
    return f"cannot tell whether the same training: {found.reason}"


def _same(layouts: tuple[str, str], methods: list[tuple[str, float]]) -> str:
    largest, listed = max(share for _, share in methods), ", ".join(method for method, _ in methods)
    return (
        f"the same training on {layouts[0]} and {layouts[1]}: the same sequences, losses of the first steps, "
        f"{COMPARED_STEPS} at most, within {largest:.1e} of each other, first gradients and updates of one size "
        f"({listed})"
    )


def _layouts(rows: Iterable[TrainingRow]) -> Iterator[tuple[TrainingRow, TrainingRow]]:
    """Yield each run with the first run of the same method and work on another layout."""
    firsts: dict[tuple[Any, ...], TrainingRow] = {}
    for row in rows:
        first = firsts.setdefault((row.method, *_step(row)), row)
        if _work(first) != _work(row):
            yield first, row


def _methods_apart(rows: Iterable[TrainingRow], engines: Mapping[str, str]) -> Iterator[str]:
    """Say which runs on one layout did another training than its first run that was asked for the same.

    A line is worth it only for what differs: methods that change how a step is computed usually agree.
    """
    firsts: dict[tuple[Any, ...], TrainingRow] = {}
    for row in rows:
        first = firsts.setdefault((_work(row), *_step(row), *row.asked_training.values()), row)
        if first is not row and (found := same_training(first.trained, row.trained)).answer == DIFFERENT:
            ours, theirs = (f"{each.method} ({_place(each)})" for each in (first, row))
            yield f"{_said(found)} with {ours} and {theirs} on {_layout(row, engines)}"


def _place(row: TrainingRow) -> str:
    return "/".join(row.folder.path.parts[-2:])


def _step(row: TrainingRow) -> tuple[Any, ...]:
    """Return what a step computes, without the settings that it learns by."""
    config, changes = row.plan.config, changes_of_training(row.plan.techniques)
    named = (config.task.name, config.model.name, config.precision.name, config.data.name)
    return (str(changes), *named, config.seed, row.batch.global_, row.seq_len)


def _asked_otherwise(first: TrainingRow, other: TrainingRow) -> str:
    """Return the settings that differ, with both values, or an empty string."""
    differing = asked_otherwise(first.asked_training, other.asked_training)
    return ", ".join(f"{key} {ours} and {theirs}" for key, (ours, theirs) in differing.items())


def _work(row: TrainingRow) -> tuple[Any, ...]:
    return row.comparison_key["engine"], row.plan.dims.dp, row.layout


def _layout(row: TrainingRow, engines: Mapping[str, str]) -> str:
    """Return the engine's name in the table and the degrees that are not 1."""
    dp = row.plan.dims.dp
    return " ".join(filter(None, [engines[row.id], f"dp {dp}" * (dp > 1), row.layout]))


def _explanation(first: TrainingRow, other: TrainingRow) -> str:
    one, another = (row.result.what_ran if row.result else {} for row in (first, other))
    told = [(name, one.get(name), another.get(name)) for name in EXPLAINS]
    differing = [
        f"{name.replace('_', ' ')} {ours} and {theirs}"
        for name, ours, theirs in told
        if ours and theirs and ours != theirs
    ]
    return f" with {', '.join(differing)}" if differing else ""
