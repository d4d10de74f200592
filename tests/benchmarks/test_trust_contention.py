"""Contention that meets one run in every round alike is what pairs of repeats cannot see by their speeds alone."""

from __future__ import annotations

import random

import pytest

from benchmarks.trust_contention import CASES, METHODS, OneRun, table
from llmexp.analysis import paired
from llmexp.training.report.conclusion import FASTER, SLOWER

TABLES = 40


def wrong(more: float) -> float:
    """The share of tables of equal methods that tell any from Naive, where one run has less of the host."""
    found = [table(OneRun(more), 4, 1.0, random.Random(seed)) for seed in range(TABLES)]
    return sum(one.said(SLOWER) + one.said(FASTER) > 0 for one in found) / TABLES


def test_a_run_that_others_slowed_more_is_not_called_slower():
    assert wrong(0.2) <= 0.05
    assert wrong(1.0) <= 0.05


def test_the_simulation_sees_a_rule_without_the_cores_that_others_took(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(paired, "OTHER_CORES", 10.0)
    monkeypatch.setattr(paired, "ALLOWED_POWER", 0.0)
    assert wrong(1.0) > 0.5


def test_methods_of_half_the_speed_are_found_although_the_host_is_shared():
    found = [table(CASES["that varies slowly"], 4, 0.5, random.Random(seed)) for seed in range(TABLES)]
    assert sum(one.said(SLOWER) for one in found) > 0.3 * TABLES * (len(METHODS) - 1)
