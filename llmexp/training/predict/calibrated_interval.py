"""Intervals of predictions that measured runs corrected, and of those on a processor, from runs that were held out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from llmexp.training.predict.interval import ONE_NODE

# As many runs as those that the held-out errors were calibrated by; with fewer, the wider interval stands.
ENOUGH = 3
CPU = "cpu"


def calibrated_interval(groups: Sequence[str], runs: int) -> tuple[float, float, int] | None:
    """Return the ends of the 90 % interval as shares of a prediction that so many runs calibrated.

    None where the run's own groups tell: too few runs calibrate it, its rates were fitted to its hardware, or it
    differs from the runs of one node that were held out.
    """
    is_alike = len(groups) == 1 or groups[0] == ONE_NODE
    return _intervals().get(groups[-1]) if runs >= ENOUGH and is_alike else None


def cpu_interval() -> tuple[float, float, int]:
    """Return the same for predictions on a processor."""
    return _intervals()[CPU]


@cache
def _intervals() -> dict[str, tuple[float, float, int]]:
    text = (files(__package__) / "calibrated_intervals.yaml").read_text(encoding="utf-8")
    loaded: dict[str, Any] = yaml.safe_load(text)
    return {group: (low, high, runs) for group, (low, high, runs) in loaded.items()}
