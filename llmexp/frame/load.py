"""The tables that notebooks read: runs, their repeats, points, and samples such as steps or requests, a row each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from llmexp.bundle.archive import is_bundle, unpacked
from llmexp.errors import ConfigError, LlmexpError, unknown
from llmexp.frame.columns import columns, working_tasks
from llmexp.frame.levels import points, repeats, runs, samples
from llmexp.frame.made import check_pandas, frame_of
from llmexp.record.folder import RunFolder, find_runs
from llmexp.record.reading import plain
from llmexp.report.row import Row, read_row

Rows = Callable[[Row], Iterable[dict[str, Any]]]
Place = str | os.PathLike[str]


def load(path: Place | Sequence[Place], level: str = "runs") -> Any:
    """Return a pandas.DataFrame of runs; a row is of a level: runs, repeats, steps, points, requests, calls, documents.

    `path` is a run's folder, a sweep's, one that holds them, a bundle of `llmexp export`, or a list of these. Units are
    in the columns' names. `attrs["columns"]` says what each column means, `attrs["unreadable"]` why a run, by its path,
    is not there. Raises ConfigError for a wrong level, a path without runs, or where pandas is missing.
    """
    levels = _levels()
    if level not in levels:
        raise unknown("level", level, levels)
    check_pandas("llmexp.load")
    rows, unreadable = [], dict[str, str]()
    for folder in _folders([path] if isinstance(path, str | os.PathLike) else path):
        try:
            rows += [{name: _plain(value) for name, value in row.items()} for row in levels[level](read_row(folder))]
        except (LlmexpError, OSError, ValueError) as error:
            unreadable[str(folder.path)] = plain(str(error))
    return frame_of(rows, columns(), unreadable=unreadable)


def _levels() -> dict[str, Rows]:
    """Return the rows of each level: those that all tasks have, and one for the samples of each kind of task."""
    names = dict.fromkeys(task.level for task in working_tasks())
    return {"runs": runs, "repeats": repeats, "points": points} | {name: partial(samples, level=name) for name in names}


def _folders(paths: Sequence[Place]) -> list[RunFolder]:
    """Find the runs of all paths, each once."""
    found: dict[Path, RunFolder] = {}
    for path in map(Path, paths):
        if not path.exists():
            raise ConfigError(
                f"{path} does not exist: name a run's folder, a sweep's, one that holds them, or a bundle"
            )
        found |= {run.path.resolve(): run for run in find_runs(unpacked(path) if is_bundle(path) else path)}
    if not found:
        raise ConfigError(f"no runs in {', '.join(map(str, paths))}: python -m llmexp method=Naive makes one")
    return list(found.values())


def _plain(value: Any) -> Any:
    return plain(value) if isinstance(value, str) else value
