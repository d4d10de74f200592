from __future__ import annotations

import pytest

from llmexp.errors import RecordError
from llmexp.report.publish import publish
from llmexp.report.table import build_report


def test_a_table_for_each_hardware_and_sweep(make_run, tmp_path):
    runs = [
        make_run(metrics={"tokens_per_s": 5.0}, hardware__name="h200"),
        make_run("F", "oom", hardware__name="h200"),
        make_run("R"),
    ]
    sweep = make_run().path.parent.name
    written = publish(build_report(runs), tmp_path / "results")
    assert [str(path.relative_to(tmp_path)) for path in written] == [
        f"results/{hardware}/{sweep}{suffix}" for hardware in ("h200", "cpu") for suffix in (".md", ".csv")
    ]
    assert "`python -m llmexp method=Naive hardware.name=h200`" in written[0].read_text()
    assert written[1].read_text().count("\n") == 3


def test_nothing_is_written_of_what_was_not_measured(make_run, tmp_path):
    with pytest.raises(RecordError, match="none of its 2 runs was measured"):
        publish(build_report([make_run("F", "oom"), make_run("R", None)]), tmp_path / "results")
    assert not (tmp_path / "results").exists()
