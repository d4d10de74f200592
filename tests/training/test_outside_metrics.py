"""What happens where the metric of another package fails."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from llmexp.analysis.metric import Metrics
from llmexp.errors import RecordError
from llmexp.training.outside_metrics import _outside

GUEST = """
from llmexp.extend import Measurement, metric

@metric("s", "lower")
def right(repeat, facts):
    \"\"\"Steps, and where they are.\"\"\"
    return Measurement(2.0, (1.0, 3.0))

@metric("s")
def none(repeat, facts):
    return None

@metric("s")
def number(repeat, facts):
    return 1.0

@metric("s")
def wrong(repeat, facts):
    return Measurement(1 / 0)
"""


@pytest.fixture
def measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "guest_metrics.py").write_text(GUEST)
    monkeypatch.syspath_prepend(tmp_path)

    def measured(name: str) -> Any:
        spec = _outside(EntryPoint(f"guests_{name}", f"guest_metrics:{name}", "llmexp.metrics"))
        metrics = Metrics()
        metrics.include(spec)
        return metrics.measure([None, None], None)[f"guests_{name}"]  # type: ignore[list-item]

    return measured


def test_its_name_is_that_of_the_entry_point_and_none_stays_none(measure: Any) -> None:
    assert (measure("right").mean, measure("right").std_between_repeats, measure("right").n) == (2.0, 0.0, 2)
    assert measure("none") is None


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("wrong", r"metric guests_wrong of package guest_metrics failed \(ZeroDivisionError: division by zero\)"),
        ("number", r"metric guests_number of package guest_metrics returned a float, not a Measurement or None"),
    ],
)
def test_one_that_fails_is_named(measure: Any, name: str, said: str) -> None:
    with pytest.raises(RecordError, match=said):
        measure(name)
