"""Arithmetic with intervals, against the slow and plain way: one nanosecond after the other."""

from __future__ import annotations

import numpy as np
import pytest

from llmexp.traces.events import Table
from llmexp.traces.intervals import Innermost, Union, exclusive_ns

LAST = 60


def table(begin, end, lane=None) -> Table:
    zeros = np.zeros(len(begin), np.int64)
    return Table(np.array(begin), np.array(end), zeros, zeros if lane is None else np.array(lane), zeros, zeros)


@pytest.mark.parametrize("seed", range(30))
def test_unions_and_what_is_exclusive_are_those_of_counting(seed: int) -> None:
    rng = np.random.default_rng(seed)
    begin = rng.integers(0, LAST, 12)
    end = np.minimum(begin + rng.integers(0, 15, 12), LAST)
    priority = rng.integers(0, 3, 12)
    covered = [any(b <= at < e for b, e in zip(begin, end, strict=True)) for at in range(LAST)]
    union = Union.of(begin, end)
    assert union.total_ns == sum(covered)
    assert (union.end[:-1] < union.begin[1:]).all()
    moments = np.arange(LAST + 1)
    assert union.before(moments).tolist() == [sum(covered[:at]) for at in moments]
    starts, stops = union.gaps(0, LAST)
    assert (stops - starts).sum() == LAST - sum(covered)
    order = sorted(range(12), key=lambda row: (priority[row], begin[row], row))
    owners = [next((row for row in order if begin[row] <= at < end[row]), -1) for at in range(LAST)]
    assert exclusive_ns(begin, end, priority).tolist() == [owners.count(row) for row in range(12)]


def test_nothing_has_no_length() -> None:
    none = np.empty(0, np.int64)
    assert Union.of(none, none).total_ns == 0
    assert Union.of(none, none).before(np.array([3])).tolist() == [0]
    assert exclusive_ns(none, none, none).tolist() == []


def test_the_innermost_of_nested_intervals_is_found_by_lane() -> None:
    nested = table([0, 2, 3, 8, 0, 12], [10, 7, 5, 8, 4, 20], [1, 1, 1, 1, 2, 1])
    found = Innermost(nested)
    assert found.around.tolist() == [-1, 0, 1, 0, -1, -1]
    ones = np.ones(13, np.int64)
    assert found.at(ones, np.arange(13)).tolist() == [0, 0, 1, 2, 2, 1, 1, 0, 0, 0, -1, -1, 5]
    assert found.at(2 * ones, np.arange(13)).tolist() == [4] * 4 + [-1] * 9
    begin, end, row = found.pieces()
    own = {number: int((end - begin)[row == number].sum()) for number in range(6)}
    assert own == {0: 5, 1: 3, 2: 2, 3: 0, 4: 4, 5: 8}


def test_an_interval_that_outlasts_the_one_around_it_is_cut() -> None:
    found = Innermost(table([0, 5], [10, 15]))
    assert found.at(np.zeros(4, np.int64), np.array([4, 5, 9, 10])).tolist() == [0, 1, 1, -1]
