"""The tables for notebooks hold what the folders hold, say what columns mean, and name what they lack."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

import llmexp
from llmexp.errors import ConfigError
from llmexp.record.result import Metric

PAGE = Path(__file__).parents[2] / "docs" / "records.md"


@pytest.fixture
def two(make_run, write_samples) -> Path:
    run = make_run(
        "F", metrics={"tokens_per_s": Metric(mean=10.5, std_between_repeats=0.5, n=2)}, reason="\x1b]0;x\x07"
    )
    write_samples(run.repeat(0), 0, [(0.5, 3.0), (0.25, 2.0), (0.25, 1.0)])
    make_run("R", status="oom")
    return run.path.parent


def test_a_row_a_run_with_metrics_and_settings(two: Path) -> None:
    found = llmexp.load(two).set_index("method")
    f = found.loc["F"]
    assert (f.tokens_per_s, f.tokens_per_s_std_between_repeats) == (10.5, 0.5)
    assert (f.status, f.evidence, f.model, f.engine, f.batch_micro) == ("success", "measured", "tiny", "deepspeed", 1)
    assert (f.hardware, f.task, f.world_size) == ("cpu", "pretrain", f.processes)
    assert "\x1b" not in f.reason
    assert found.loc["R"].status == "oom"
    assert found.tokens_per_s.isna().tolist() == [name == "R" for name in found.index]


def test_steps_of_the_ranks(two: Path) -> None:
    steps = llmexp.load([two, two], level="steps")
    assert steps.duration_s.tolist() == [0.5, 0.25, 0.25]
    assert steps.warmup.tolist() == [True, True, False]
    assert steps.loss.tolist() == [3.0, 2.0, 1.0]
    assert steps.forward_time_s.tolist() == [0.125, 0.0625, 0.0625]
    assert set(steps["rank"]) == set(steps["repeat"]) == {0}


def test_columns_are_told_with_unit_and_meaning(two: Path) -> None:
    told = llmexp.load(two).attrs["columns"]["tokens_per_s"]
    assert told == {
        "unit": "tokens/s",
        "description": "Positions per second in the measured window, over all replicas.",
    }
    everything = llmexp.columns()
    assert {"peak_allocated_bytes", "output_tokens_per_s", "tokens_per_s_std_between_repeats"} <= set(everything)
    assert all(set(meaning) == {"unit", "description"} for meaning in everything.values())


def test_damaged_and_newer_results_are_named_and_the_rest_loaded(two: Path, make_run) -> None:
    damaged, newer = make_run("Z2"), make_run("Z3")
    damaged.result_path.write_text("{")
    newer.result_path.write_text(json.dumps(json.loads(newer.result_path.read_text()) | {"color": "red"}))
    found = llmexp.load(two)
    assert sorted(found.method) == ["F", "R"]
    assert set(found.attrs["unreadable"]) == {str(damaged.path), str(newer.path)}
    assert "color" in found.attrs["unreadable"][str(newer.path)]


def test_wrong_input_is_one_line(tmp_path: Path, two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    for path, level, said in (
        (tmp_path / "empty", "runs", "no runs in"),
        (tmp_path / "none", "runs", "does not exist"),
        (two, "step", "did you mean steps"),
    ):
        with pytest.raises(ConfigError, match=said):
            llmexp.load(path, level=level)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigError, match="pip install pandas"):
        llmexp.load(two)


def test_importing_llmexp_is_light() -> None:
    told = "import sys, llmexp; print([name for name in ('pandas', 'pydantic', 'hydra') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", told], capture_output=True, text=True).stdout == "[]\n"


def test_the_page_s_example_runs(two: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(two.parent)
    two.rename(two.parent / "outputs")
    blocks = re.findall(r"(?:^ {4}.*\n|^\n)+", PAGE.read_text(), re.MULTILINE)
    (example,) = (block for block in blocks if "llmexp.load(" in block)
    exec(dedent(example), {})
    assert "10.5" in capsys.readouterr().out
