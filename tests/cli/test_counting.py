from __future__ import annotations

import sys

import pytest

from llmexp.cli import counting
from llmexp.cli.counting import counted


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that pass between two looks at the clock, as the last of a list."""
    at, step = [0.0], [1.0]

    def monotonic() -> float:
        at[0] += step[-1]
        return at[0]

    monkeypatch.setattr(counting.time, "monotonic", monotonic)
    return step


def test_short_work_says_nothing(capsys):
    assert list(counted("planning run", range(1000))) == list(range(1000))
    assert capsys.readouterr() == ("", "")


def test_long_work_says_a_line_now_and_then(clock, capsys):
    assert list(counted("planning run", "abcdefghijklmnop")) == list("abcdefghijklmnop")
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["llmexp: planning run 2 of 16", "llmexp: planning run 12 of 16"]


def test_a_terminal_has_one_line_that_is_gone_at_the_end(clock, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    list(counted("planning run", range(5)))
    err = capsys.readouterr().err
    assert "\n" not in err
    assert err.endswith("\r\x1b[K")
    assert err.count("planning run") > 1
