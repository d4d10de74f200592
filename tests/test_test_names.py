"""Names of tests: pytest imports the files of all folders by their names alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parent
# A package of its own, which is installed by its tests.
OUTSIDE = TESTS / "extension" / "outside"


def test_no_two_files_of_tests_have_the_same_name() -> None:
    files = [
        path
        for path in TESTS.rglob("*.py")
        if OUTSIDE not in path.parents and path.name not in ("conftest.py", "__init__.py")
    ]
    counted = Counter(path.name for path in files)
    assert counted["test_test_names.py"] == 1
    assert [name for name, count in counted.items() if count > 1] == []
