"""Marks of single rows of a table of cases."""

from __future__ import annotations

from collections.abc import Container, Hashable
from typing import Any

import pytest


def slow(*values: Any) -> Any:
    """Give a row that `make test-all` tests and `make test` leaves out."""
    return pytest.param(*values, marks=pytest.mark.slow)


def tier(name: Hashable, quick: Container[Hashable], short: Container[Hashable]) -> list[pytest.MarkDecorator]:
    """Return a row's mark: none in `make test`, slow in `make test-all`, and sweep in `make test-sweeps`."""
    return [] if name in quick else [pytest.mark.slow] if name in short else [pytest.mark.sweep]
