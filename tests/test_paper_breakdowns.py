"""The paper's experiments on where time goes, on real ranks, as a person tries them on a laptop."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmexp.record.folder import find_runs

pytestmark = pytest.mark.slow
WORDS = ("model=tiny", "hardware=cpu", "measure=smoke", "data.seq_len=32", "tracking=none")
SWEEP = "paper_modules"


def test_table_vi_ends_a_run_on_a_cpu_and_the_same_run_answers_table_v(llmexp, tmp_path: Path) -> None:
    outputs = f"sweep.outputs={tmp_path}"
    code, out, error = llmexp("experiment=paper_table06", *WORDS, outputs)
    assert code == 0, error
    assert "table VI of the paper, modules: tiny on cpu, 2 ranks, deepspeed, bf16_pure" in out
    assert "NOT the paper's run (model tiny for 7b, cpu for a800, 2 ranks for 8, seq_len 32 for 350)" in out
    assert "non-overlapping communication" in out
    (run,) = find_runs(tmp_path / SWEEP)
    measured_at = run.result_path.stat().st_mtime_ns
    code, again, error = llmexp("experiment=paper_table05", *WORDS, outputs)
    assert code == 0, error
    assert "table V of the paper, phases: tiny on cpu" in again
    assert run.result_path.stat().st_mtime_ns == measured_at
    assert "### table VI of the paper" in (tmp_path / SWEEP / "report.md").read_text()
    assert llmexp("trace", str(run.path), "--rank", "1", "--timeline", str(tmp_path / "step.svg"))[0] == 0
    drawn = (tmp_path / "step.svg").read_text()
    assert all(f"<!-- {word} -->" in drawn for word in ("forward", "backward", "QKV", "communication"))


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("experiment", "runs", "told"),
    [
        ("paper_table15", 4, ("V", "VI", "VII", "VIII", "XIII", "XV")),
        ("paper_table16", 6, ("XIV", "XVI")),
    ],
)
def test_all_methods_of_a_table_run_on_two_cpu_ranks(
    llmexp, tmp_path: Path, experiment: str, runs: int, told: tuple[str, ...]
) -> None:
    code, out, error = llmexp(f"experiment={experiment}", *WORDS, f"sweep.outputs={tmp_path}")
    assert code == 0, error
    found = [run.result() for run in find_runs(tmp_path / SWEEP)]
    assert [result.status for result in found if result] == ["success"] * runs
    for number in told:
        assert f"table {number} of the paper" in out
    assert ("figure 5 of the paper" in out) == (experiment == "paper_table15")
    assert (tmp_path / SWEEP / "report_figure5.png").exists() == (experiment == "paper_table15")
