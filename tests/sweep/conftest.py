from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from llmexp.launch.forked import ForkedAgent


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def _fork_server() -> Iterator[None]:
    """The process that forks ranks ends with the test."""
    yield
    if ForkedAgent.server:
        ForkedAgent.server.close()
        ForkedAgent.server = None
