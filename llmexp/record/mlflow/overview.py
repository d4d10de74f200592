"""What a reader sees first in MLflow: the columns of the list of runs, and a sweep's best figures on its own page."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from llmexp.record.mlflow.tags import KIND_TAG

VIEW = "llmexp"
VIEW_TAG = f"mlflow.sharedViewState.{VIEW}"
"""The tag of an experiment by which MLflow keeps a view that is shared; its name stands in the page's address."""
OF_TRAINING = "workflowType=machine_learning"
"""What the address of a page says so that MLflow 3 shows runs of training; else it shows chat programs and traces."""
FIRST, LAST = ("method",), ("engine", "hardware", "status", "stability")


@dataclass(frozen=True)
class Overview:
    """The metrics that are columns of the list, the first of which orders it; a sweep's best figures and their words.

    `best` has a metric of the sweep's own run for each name.
    """

    columns: tuple[str, ...] = ()
    best: Mapping[str, float] = field(default_factory=dict)
    words: tuple[str, ...] = ()


def shared_view(columns: Iterable[str], earlier: str | None) -> str:
    """Return the state of MLflow's list of runs with these metrics as columns, and those of the earlier state after.

    It shows runs without their sweeps, and those with the highest value of the first metric first. Any other order than
    by time makes MLflow show runs side by side instead of folded below their sweep.
    """
    metrics = list(dict.fromkeys([*columns, *_metrics_of(earlier)]))
    shown = [*map(_tag, FIRST), *(f"metrics.`{name}`" for name in metrics), *map(_tag, LAST)]
    state = {"searchFilter": f"{_tag(KIND_TAG)} = 'run'", "selectedColumns": shown, "columnOrder": shown}
    return json.dumps(state | ({"orderByKey": f"metrics.`{metrics[0]}`", "orderByAsc": False} if metrics else {}))


def _metrics_of(state: str | None) -> list[str]:
    try:
        columns = json.loads(state or "{}").get("selectedColumns", [])
        return [name.removeprefix("metrics.`")[:-1] for name in columns if name.startswith("metrics.`")]
    except (ValueError, AttributeError, TypeError):  # somebody may have written another state there
        return []


def _tag(name: str) -> str:
    return f"tags.`{name}`"
