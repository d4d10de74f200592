from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from chaos.driver import OWN_NAMESPACES, Driver, can_start


@pytest.mark.skipif(not can_start(OWN_NAMESPACES), reason="this user may not have namespaces of its own")
def test_a_driver_that_has_ended_is_too_late_for_a_fault(tmp_path: Path) -> None:
    surroundings = SimpleNamespace(llmexp=lambda *words: ["true"], environment=dict(os.environ), scratch=tmp_path)
    driver = Driver(surroundings, [], tmp_path / "log", OWN_NAMESPACES)
    assert driver.ends_within(30) == 0
    assert driver.pid
    assert not driver.rename_host("renamed")
