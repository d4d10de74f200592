"""The traces that the benchmark makes up, and the figures that it has limits for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.process import Cost
from benchmarks.traces import CLOCKS, JSON, OURS, _figures, _of_clocks, write_trace
from llmexp.traces.events import read_trace


def cost(cpu_s: float, peak_bytes: float) -> Cost:
    return Cost(cpu_s, cpu_s, 0.0, cpu_s, 0.0, int(peak_bytes))


@pytest.mark.parametrize("begin_us", CLOCKS.values(), ids=CLOCKS)
def test_a_made_up_trace_has_three_decimals_and_reads_to_the_nanosecond(tmp_path: Path, begin_us: int) -> None:
    path = tmp_path / "trace.json"
    write_trace(path, 20_000, begin_us)
    text = path.read_text()
    times = [line.partition('"ts": ')[2].partition(",")[0] for line in text.splitlines() if '"ts": ' in line]
    assert {len(time.partition(".")[2]) for time in times} == {3}
    trace = read_trace(path)
    assert trace.launches.begin.tolist()[:2] == [begin_us * 1000 + 3784, begin_us * 1000 + 13_784]
    assert trace.device_name == json.loads(text)["deviceProperties"][0]["name"]


def test_the_command_has_a_limit_of_time_and_one_of_memory_and_others_have_none() -> None:
    costs = {OURS: [cost(3.1, 101e6)] * 3, JSON: [cost(10.0, 1e9)] * 3, "another": [cost(30.0, 2e9)] * 3}
    figures = {figure.name.removeprefix("a trace, "): figure for figure in _figures("a trace", costs)}
    verdicts = {name: figure.verdict for name, figure in figures.items()}
    assert verdicts == {
        "llmexp trace over json": "BROKEN",
        "another over json": "no limit",
        "llmexp trace, peak": "BROKEN",
        "json, peak": "no limit",
        "another, peak": "no limit",
    }
    kept = {OURS: [cost(2.9, 99e6)] * 3, JSON: costs[JSON]}
    assert {figure.verdict for figure in _figures("a trace", kept)} == {"kept", "no limit"}


def test_the_epochs_times_may_cost_hardly_more_than_a_clocks() -> None:
    """Read as decimal numbers they took 1.7 times as long."""
    machine = [cost(1.0, 1e8), cost(1.1, 1e8), cost(1.2, 1e8)]
    for factor, verdict in ((1.05, "kept"), (1.7, "BROKEN")):
        assert _of_clocks([cost(factor * one.all_cpu_s, 1e8) for one in machine], machine).verdict == verdict
