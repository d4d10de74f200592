"""The best figures of a sweep, for a page that has room for a few: which run is fastest, and by how much others lag."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from llmexp.record.digits import rounded
from llmexp.registry import get_task
from llmexp.report.row import DOUBTS, Row


def best_figures(rows: Iterable[Row]) -> dict[str, float]:
    """Return the best value of each headline of the rows' task, as best/<model>/<metric>, in the metric's unit.

    Values come from all runs of a model that were measured, whatever their batch or hardware.
    """
    found = {}
    for name, group in _groups(rows).items():
        task = get_task(group[0].plan.config.task.name)
        for metric in (group[0].plan.rate, *task.headlines):
            values = [value.mean for row in group if (value := row.metric(metric))]
            if values and metric in task.metrics:
                found[f"best/{name}/{metric}"] = (min if task.metrics[metric].better == "lower" else max)(values)
    return found


def best_words(rows: Sequence[Row]) -> list[str]:
    """Return the endings of all runs in a line, then the fastest run of each model with what speaks against it."""
    states = Counter(row.state for row in rows)
    endings = ", ".join(f"{count} {state}" for state, count in states.most_common())
    lines = [f"{len(rows)} run{'' if len(rows) == 1 else 's'}: {endings}"]
    for name, group in _groups(rows).items():
        measured = [(rate.mean, row) for row in group if (rate := row.rate)]
        if measured:
            value, row = max(measured, key=lambda pair: pair[0])
            doubt = f", {DOUBTS[row.stability.verdict]}" if row.doubt and row.stability else ""
            lines.append(f"fastest of {name}: {row.name}, {rounded(value)} {row.plan.rate_unit}{doubt}")
    return lines


def headlines(rows: Iterable[Row]) -> tuple[str, ...]:
    """Return the names of the rates of all rows' tasks, and then of their other headlines that any row has."""
    every = list(rows)
    rates = [row.plan.rate for row in every if row.plan.rate]
    others = [
        name for row in every for name in get_task(row.plan.config.task.name).headlines if row.metric(name) is not None
    ]
    return tuple(dict.fromkeys([*rates, *others]))


def _groups(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Return rows by the name fields that they share, such as the model."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        shared = list(row.plan.name_fields.values())[:-1]
        found[" ".join(shared) or row.plan.config.task.name].append(row)
    return found
