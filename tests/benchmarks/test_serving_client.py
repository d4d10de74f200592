from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from benchmarks.serving_client import CLIENTS, measure

COMMAND = [sys.executable, "-m", "llmexp.launchers.serving.client.instant_server", "--apart"]


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with subprocess.Popen(COMMAND, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout
            yield int(server.stdout.readline())
        finally:
            server.kill()


@pytest.mark.parametrize("name", CLIENTS)
def test_every_client_takes_whole_streams(name: str, port: int) -> None:
    assert min(measure(name, port, 100).values()) > 0


@pytest.mark.parametrize("name", CLIENTS)
def test_a_stream_that_is_not_whole_ends_the_measurement(name: str, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.serving_client.TOKENS", 31)
    with pytest.raises(RuntimeError, match="100 of 100 streams were not whole"):
        measure(name, port, 100)
