"""A fixture for tests of processes: which of them a test has started, and that none outlives it."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator

import psutil
import pytest

MARK = "LLMEXP_TEST_MARK"


@pytest.fixture(autouse=True)
def processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[psutil.Process]]]:
    """All living processes that this test started, wherever their parents went; none may outlive the test."""
    mark = uuid.uuid4().hex
    monkeypatch.setenv(MARK, mark)

    def living() -> list[psutil.Process]:
        return [process for process in psutil.process_iter() if process.pid != os.getpid() and _mark(process) == mark]

    yield living
    left = living()
    for process in left:
        process.kill()
    assert left == []


def _mark(process: psutil.Process) -> str | None:
    try:
        return process.environ().get(MARK) if process.status() != psutil.STATUS_ZOMBIE else None
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return None
