"""Other readers of traces are asked where an interpreter has them, and only then."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.rivals import rivals_of


def test_without_an_interpreter_nobody_else_is_asked() -> None:
    assert rivals_of(None) == {}


def test_an_interpreter_is_asked_by_those_that_it_has(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\ntest "$3" = hta\n')
    python.chmod(0o755)
    assert [(name, command[0]) for name, command in rivals_of(str(python)).items()] == [
        ("HolisticTraceAnalysis", str(python))
    ]


def test_an_interpreter_without_any_is_one_clear_line() -> None:
    with pytest.raises(SystemExit, match="it has none of HolisticTraceAnalysis, TraceLens"):
        rivals_of(sys.executable)
