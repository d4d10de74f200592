import random

import pytest

from benchmarks.rates import rate
from benchmarks.simulated import Protocol, Scatter, Simulated
from benchmarks.trust import FALSE_ALARMS, FOUND
from llmexp.analysis import stability


def test_a_rate_breaks_its_limit_only_beyond_chance():
    kept, broken = rate("few", 3, 100, limit=2.0), rate("many", 30, 1000, limit=1.0)
    # Wilson's interval of 3 of 100.
    assert (kept.measured.mean, kept.measured.low, kept.measured.high) == (
        pytest.approx(3),
        pytest.approx(1.03, abs=0.01),
        pytest.approx(8.45, abs=0.01),
    )
    assert (kept.verdict, broken.verdict) == ("kept", "BROKEN")
    assert rate("none", 0, 50, floor=95.0).verdict == "BROKEN"


def share_unstable(drift: float, tries: int = 60) -> float:

    draw, paper = random.Random(0), Simulated(Protocol("paper", 3, 30, 100), Scatter(0.05, 0.5, 0.01), drift=drift)
    return 100 * sum(paper.run(draw)[1].verdict == "unstable" for _ in range(tries)) / tries


def test_a_quiet_run_is_no_alarm_and_a_drift_of_a_tenth_is_found_though_steps_depend_on_each_other():
    assert share_unstable(0.0) <= FALSE_ALARMS
    assert share_unstable(0.1) >= FOUND


def test_the_simulation_sees_a_verdict_that_is_too_hasty(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stability, "RELEVANT", 0.001)
    monkeypatch.setattr(stability, "_counts", lambda change, confidence=0.5: change is not None and change.differs(0.5))
    assert share_unstable(0.0) > FALSE_ALARMS
