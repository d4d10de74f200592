from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from patience import HANG_S

from chaos import driver as driver_module
from chaos.driver import HERE, OWN_NAMESPACES, Driver, can_start


@pytest.mark.skipif(not can_start(OWN_NAMESPACES), reason="this user may not have namespaces of its own")
def test_a_driver_that_has_ended_is_too_late_for_a_fault(tmp_path: Path) -> None:
    surroundings = SimpleNamespace(llmexp=lambda *words: ["true"], environment=dict(os.environ), scratch=tmp_path)
    driver = Driver(surroundings, [], tmp_path / "log", OWN_NAMESPACES)
    assert driver.ends_within(HANG_S) == 0
    assert driver.pid
    assert not driver.rename_host("renamed")


@pytest.mark.parametrize(("body", "code"), [("while time.process_time() < 3: pass", 0), ("time.sleep(3600)", None)])
def test_a_driver_is_waited_for_while_it_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, code: int | None
) -> None:
    monkeypatch.setattr(driver_module, "IDLE_S", 4.0)
    command = [sys.executable, "-c", f"import time\n{body}"]
    surroundings = SimpleNamespace(llmexp=lambda *words: command, environment=dict(os.environ), scratch=tmp_path)
    driver = Driver(surroundings, [], tmp_path / "log", HERE)
    assert driver.ends() == code
    driver.send(signal.SIGKILL)
    driver.ends_within(HANG_S)
