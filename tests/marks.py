"""Marks of single rows of a table of cases, and what selects by marks."""

from __future__ import annotations

import re
from collections.abc import Container, Hashable
from typing import Any

import pytest


def slow(*values: Any) -> Any:
    """Give a row that `make test-all` tests and `make test` leaves out."""
    return pytest.param(*values, marks=pytest.mark.slow)


def tier(name: Hashable, quick: Container[Hashable], short: Container[Hashable]) -> list[pytest.MarkDecorator]:
    """Return a row's mark: none in `make test`, slow in `make test-all`, and sweep in `make test-sweeps`."""
    return [] if name in quick else [pytest.mark.slow] if name in short else [pytest.mark.sweep]


def lacks(source: str, expression: str) -> bool:
    """Tell whether no test of a file can have the mark that an expression begins with, as `slow and not gpu` does.

    It is also true where the whole file has a mark that an expression rules out, as `not gpu and not slow` does. It is
    false for any other expression, such as one with `or`.
    """
    if re.fullmatch(r"not \w+( and not \w+)*", expression):
        names = "|".join(term.removeprefix("not ") for term in expression.split(" and "))
        return bool(re.search(rf"^pytestmark = .*\bmark\.({names})\b", source, re.MULTILINE))
    first = expression.split(" ")[0]
    if first in ("", "not") or not first.isidentifier() or " or " in expression:
        return False
    helpers = {"slow": ("slow(", "tier("), "sweep": ("tier(",)}
    return not any(word in source for word in (f"mark.{first}", *helpers.get(first, ())))
