"""The simulation of drifts of predictions: few false alarms, and a large drift is found."""

from __future__ import annotations

from benchmarks.trust_predictions import FALSE_ALARMS, prediction_verdicts


def test_few_false_alarms_and_large_drifts_are_found() -> None:
    found = {figure.name: figure for figure in prediction_verdicts(120)}
    assert len(found) == 18
    assert not [name for name, figure in found.items() if figure.broken]
    alarms = [figure.measured.mean for name, figure in found.items() if name.startswith("drift told")]
    assert len(alarms) == 6
    assert sum(alarms) / len(alarms) < 1.5 * FALSE_ALARMS
    assert found["20% slower than before found: 40 sweeps by day, normal errors"].measured.mean > 90
