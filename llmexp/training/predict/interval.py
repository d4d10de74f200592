"""Intervals from the errors that predictions made of runs that were held out (split conformal prediction).

The quantiles of these errors are carried with the constants, by group; each has more than 100 runs.
"""

from __future__ import annotations

from llmexp.training.predict.rates import FITTED, constants


def group_of(task: str, source: str, *, offloads: bool) -> str:
    """Name the group of runs whose errors are alike: by task on fitted hardware, by the host's part on other."""
    if source == FITTED:
        return f"{task} on fitted hardware"
    return f"other hardware, {'with' if offloads else 'without'} offload"


def interval_of(group: str) -> tuple[float, float, int]:
    """Return the ends of a group's 90 % interval as shares of a prediction, and the number of held-out runs behind."""
    low, high, runs = constants()["intervals"][group]
    return low, high, runs
