"""A step of a path counts only with its answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.paths import _step


def test_a_step_is_timed_to_its_answer(tmp_path: Path) -> None:
    figure = _step("ask", ["sh", "-c", "sleep 0.05; echo it fits"], tmp_path, "fits")
    assert (figure.name, figure.unit, figure.n) == ("ask", "s", 1)
    assert figure.measured.mean >= 0.05


@pytest.mark.parametrize(("script", "said"), [("echo no", "'fits' is not in its answer"), ("exit 3", "ended with 3")])
def test_a_step_without_an_answer_fails(script: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=said):
        _step("ask", ["sh", "-c", script], tmp_path, "fits")
