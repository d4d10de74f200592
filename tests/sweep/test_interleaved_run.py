"""Real ranks of two methods in turns, and the same run by run."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmexp.analysis.contention import windows_unix_s
from llmexp.record.folder import RunFolder, find_runs

pytestmark = [pytest.mark.slow, pytest.mark.ranks]
REAL = (
    *("method=Naive,F", "model=tiny", "hardware=cpu", "engine=torch", "engine.launcher=fork", "tracking=none"),
    *("model.num_layers=1", "data=synthetic", "data.seq_len=32", "measure.threads_per_rank=1"),
    *("measure=smoke", "measure.repeats=2", "measure.profile=false"),
)


def begun(runs: dict[str, RunFolder]) -> list[str]:
    """Return whose repeats began one after the other, by the times of their samples."""
    windows = {
        window: method
        for method, run in runs.items()
        for window in windows_unix_s(repeat / "samples.0.jsonl" for repeat in run.repeats())
    }
    return [windows[window] for window in sorted(windows)]


def test_repeats_alternate_in_time_and_measure_what_they_do_run_by_run(llmexp, here: Path):
    sweeps = {}
    for order in ("run_by_run", "interleaved"):
        code, _, err = llmexp(*REAL, f"measure.order={order}", f"sweep.name={order}")
        assert code == 0, err
        report = (here / "outputs" / order / "report.md").read_text()
        assert ("order: repeats of all runs were measured in turns" in report) == (order == "interleaved")
        sweeps[order] = {run.result().method: run for run in find_runs(here / "outputs" / order)}
    assert begun(sweeps["run_by_run"]) == ["Naive", "Naive", "F", "F"]
    assert begun(sweeps["interleaved"]) == ["Naive", "F", "F", "Naive"]
    for method, run in sweeps["interleaved"].items():
        result, other = run.result(), sweeps["run_by_run"][method].result()
        assert (result.order, other.order) == ("interleaved", "run_by_run")
        assert result.id != other.id
        assert result.metrics.keys() == other.metrics.keys()
        assert result.metrics["final_loss"].mean == pytest.approx(other.metrics["final_loss"].mean, abs=1e-6)
        assert [turn.repeat for turn in result.turns] == [turn.repeat for turn in other.turns] == [0, 1]
        assert result.stability.concurrent_runs == [], "its neighbors in time are no neighbors on the machine"
