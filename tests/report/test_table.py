import subprocess
import sys

from llmexp.record.folder import RunFolder
from llmexp.record.samples import TrainingSummary
from llmexp.report.table import build_report
from llmexp.report.terminal import print_report
from llmexp.report.text import comma_separated, markdown


def test_rows_keep_the_order_given(make_run):
    folders = [make_run(method) for method in ("Z3", "Naive", "F")]
    assert [row.method for row in build_report(folders).rows] == ["Z3", "Naive", "F"]


def test_an_unreadable_folder_is_said_and_hides_no_other(make_run, tmp_path):
    broken = make_run("F")
    broken.result_path.write_text("{}")
    report = build_report([broken, RunFolder(tmp_path / "none"), make_run("R")])
    assert [row.method for row in report.rows] == ["R"]
    assert "result.json is not a result" in report.unreadable[0]
    assert "plan.json is missing" in report.unreadable[1]


def test_what_of_the_held_time_was_measured_is_said(make_run, capsys):
    run = make_run()
    times = {"started_at": "2026-01-01T00:00:00.000+00:00", "ended_at": "2026-01-01T00:00:40.000+00:00"}
    run.write(run.result_path, run.result().model_copy(update=times))
    sizes = {"parameters": 1, "trainable_parameters": 1, "peak_rss_bytes": 1}
    summary = TrainingSummary(
        rank=0, window_wall_s=10.0, time_to_first_step_s=1.0, state_bytes={}, what_ran={}, **sizes
    )
    run.write(run.repeat(0) / "rank.0.json", summary)
    print_report(build_report([run]), explain=True)
    assert "held their devices, 25.0% went into measured steps" in capsys.readouterr().out
    (run.repeat(0) / "rank.0.json").write_text("{")
    print_report(build_report([run]), explain=True)
    assert "held their devices" not in capsys.readouterr().out


def test_no_runs_is_a_report_too(capsys):
    report = build_report([])
    print_report(report)
    assert "No runs" in capsys.readouterr().out
    assert markdown(report).startswith("## No runs")
    assert comma_separated(report).count("\n") == 1


def test_importing_reports_loads_no_heavy_library():
    code = (
        "import sys, llmexp.report.plots, llmexp.report.compare, llmexp.report.terminal, llmexp.report.text; "
        "print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"rich", "matplotlib", "mlflow", "pandas", "torch"} & set(loaded)
