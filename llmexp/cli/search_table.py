"""The table of a search's trials, and the words that start the best one."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from llmexp.sweep.search.searching import Searched
from llmexp.sweep.search.trial import SearchTrial

_GAP = "  "


def print_trials(found: Searched) -> None:
    """Print the trials, the best one first, and what starts it."""
    if found.trials:
        print(*trial_lines(found), sep="\n", flush=True)


def trial_lines(found: Searched) -> list[str]:
    """Return the table, the words of the best trial, and where the runs are."""
    keys = list(found.trials[0].point)
    headers = ["trial", *keys, found.goal.metric, "state", "run"]
    rows = [_cells(trial, keys) for trial in found.trials]
    widths = [max(len(row[place]) for row in [headers, *rows]) for place in range(len(headers))]
    table = [_GAP.join(map(str.ljust, row, widths)).rstrip() for row in [headers, *rows]]
    reasons = [f"trial {trial.number}: {trial.reason}" for trial in found.trials if trial.reason]
    return ["", *table, *reasons, *_best(found), f"runs: {found.folder}; llmexp report {found.folder} shows them"]


def _cells(trial: SearchTrial, keys: Sequence[str]) -> list[str]:
    point = [trial.point.get(key, "") for key in keys]
    value = "-" if trial.value is None else f"{trial.value:.6g}"
    return [str(trial.number), *point, value, trial.standing, trial.run or "-"]


def _best(found: Searched) -> list[str]:
    best = found.best
    if best is None:
        return ["no trial is complete, so none is best"]
    return [f"best is trial {best.number}: llmexp {shlex.join(best.words)}"]
