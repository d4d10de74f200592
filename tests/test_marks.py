"""What `-m` selects is found without importing the files that have none of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from marks import lacks, slow, tier

FILES = sorted(Path(__file__).parent.rglob("test_*.py"))


def test_only_four_files_have_tests_for_a_gpu() -> None:
    found = {path.name for path in FILES if not lacks(path.read_text(), "gpu")} - {Path(__file__).name}
    assert found == {"test_block.py", "test_cuda.py", "test_micro_run.py", "test_memory.py"}


@pytest.mark.parametrize(
    ("source", "expression", "without"),
    [
        ("@pytest.mark.gpu", "gpu", False),
        ("@pytest.mark.ranks", "gpu", True),
        ("[slow(1), 2]", "slow and not gpu", False),
        ("marks=tier(name, A, B)", "slow and not gpu", False),
        ("marks=tier(name, A, B)", "sweep", False),
        ("[slow(1), 2]", "sweep", True),
        ("@pytest.mark.ranks", "not gpu and not slow", False),
        ("@pytest.mark.ranks", "", False),
        ("@pytest.mark.ranks", "(gpu or slow)", False),
        ("pytestmark = [pytest.mark.ranks, pytest.mark.slow]", "not gpu and not slow", True),
        ("pytestmark = pytest.mark.slow", "slow and not gpu", False),
        ("pytestmark = pytest.mark.slow", "not gpu or slow", False),
        ("pytestmark = pytest.mark.slowest", "not slow", False),
        ("@pytest.mark.slow", "not slow", False),
        ("@pytest.mark.ranks", "slow or not slow", False),
    ],
)
def test_a_file_is_left_out_where_no_test_of_it_can_have_the_mark(source: str, expression: str, without: bool) -> None:
    assert lacks(source, expression) is without


def test_a_row_is_in_the_first_tier_that_has_it() -> None:
    tiers = {name: tier(name, {"a"}, {"a", "b"}) for name in "abc"}
    assert tiers == {"a": [], "b": [pytest.mark.slow], "c": [pytest.mark.sweep]}
    assert [mark.name for mark in slow(1, 2).marks] == ["slow"]
