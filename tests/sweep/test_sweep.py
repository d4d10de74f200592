from __future__ import annotations

from pathlib import Path

import pytest

from llmexp.record.folder import find_runs
from llmexp.record.result import RunStatus

QUIET = ("tracking=none", "model=tiny", "hardware=cpu")


def test_a_single_run_is_a_sweep_of_one(llmexp, runner, here: Path):
    code, out, _ = llmexp("method=F", *QUIET)
    assert code == 0
    assert runner.ran == ["tiny F"]
    assert out.startswith("1 run of outputs/main | tiny on 2 x cpu: F\n")
    assert len(find_runs(here / "outputs")) == 1


def test_runs_have_names_that_tell_them_apart(llmexp, runner):
    llmexp("method=Naive,F", "parallelism.dp=1,2", "batch.micro=2", *QUIET)
    assert runner.ran == [f"tiny {method} parallelism.dp={dp}" for method in ("Naive", "F") for dp in (1, 2)]


def test_one_method_by_two_names_is_one_run(llmexp, runner):
    llmexp("+method=R+F,F+R,f+r", *QUIET, "-m")
    assert runner.ran == ["tiny F+R"]


@pytest.mark.parametrize("status", RunStatus)
def test_the_exit_code_says_whether_every_run_answered(status, llmexp, runner):
    runner.endings = {"R": status}
    code, _, _ = llmexp("method=Naive,R,F", *QUIET)
    assert code == (0 if status in ("success", "oom", "skipped") else 1)
    assert runner.ran == ["tiny Naive", "tiny R", "tiny F"]


def test_a_defect_in_one_run_is_shown_and_stops_no_other(llmexp, runner):
    runner.endings = {"R": ZeroDivisionError("driver's defect")}
    code, out, err = llmexp("method=Naive,R,F", *QUIET)
    assert code == 1
    assert runner.ran == ["tiny Naive", "tiny R", "tiny F"]
    assert "ZeroDivisionError: driver's defect" in err
    assert "planned" in out


def test_ctrl_c_ends_the_sweep(llmexp, monkeypatch):
    def interrupt(plan, folder, wanted):
        raise KeyboardInterrupt

    monkeypatch.setattr("llmexp.launch.run.run_one", interrupt)
    code, _, err = llmexp("method=Naive,R", *QUIET)
    assert code == 130
    assert err.count("\n") == 1


def test_ctrl_c_shows_what_was_measured_before_it(llmexp, runner):
    runner.endings = {"R": KeyboardInterrupt()}
    code, out, _ = llmexp("method=Naive,F,R,C", *QUIET)
    assert code == 130
    assert runner.ran == ["tiny Naive", "tiny F", "tiny R"]
    assert [method for method in ("Naive", "F", "R", "C") if f" {method} " in out.partition("method")[2]] == [
        "Naive",
        "F",
    ]


def test_a_word_that_a_later_one_replaces_is_named(llmexp, runner):
    code, _, err = llmexp("method=F", "method=R", "seed=1", "+seed=1", *QUIET)
    assert (code, runner.ran) == (0, ["tiny R"])
    assert err.splitlines()[0] == "llmexp: method=F is replaced by method=R, which comes later"
    assert "seed" not in err


def test_a_report_later_has_the_order_of_the_command(llmexp, runner):
    llmexp("method=R,F,Naive", *QUIET)
    out = llmexp("report", "outputs/main", "--format", "csv")[1]
    column = out.splitlines()[0].split(",").index("method")
    assert [line.split(",")[column] for line in out.splitlines()[1:4]] == ["R", "F", "Naive"]
    assert llmexp("report", "main", "--format", "csv")[1] == out


def test_hydra_writes_nothing_of_its_own(llmexp, runner, here: Path):
    llmexp("method=Naive,R", *QUIET)
    written = {path.name.partition("_")[0] for path in (here / "outputs/main").iterdir()}
    assert written == {"tiny", "report.md", "report.csv", "report.html", "report.png", ".order.json"}
    assert [path.name for path in here.iterdir()] == ["outputs"]


def test_answers_are_kept_and_failures_measured_again(llmexp, runner):
    runner.endings = {"R": RunStatus.FAILED}
    llmexp("method=Naive,R", *QUIET)
    runner.ran.clear()
    code, out, _ = llmexp("method=Naive,R", *QUIET)
    assert runner.ran == ["tiny R"]
    assert code == 1
    assert "success already" in out
    assert "again, it ended failed" in out
    llmexp("method=Naive", "rerun=all", *QUIET)
    assert runner.ran == ["tiny R", "tiny Naive"]


def test_every_run_and_the_report_reach_the_tracker(llmexp, runner, monkeypatch, here: Path):
    recorded = []

    def note_run(folders, tracking):
        recorded.append(folders[0].path.name.rpartition("_")[0])

    def note_report(files, digest, overview, tracking):
        recorded.append((*(file.name for file in files), files[0].parent, overview.columns[0], overview.words))
        return True

    monkeypatch.setattr("llmexp.record.mlflow.record_runs", note_run)
    monkeypatch.setattr("llmexp.record.mlflow.record_report", note_report)
    code, out, _ = llmexp("method=Naive,R", "tracking=mlflow", "sweep.outputs=elsewhere", "sweep.name=mine")
    assert code == 0
    assert recorded == [
        "tiny_Naive",
        "tiny_R",
        (
            "report.md",
            "report.csv",
            "report.html",
            "report.png",
            Path("elsewhere/mine"),
            "tokens_per_s",
            ("2 runs: 2 success",),
        ),
    ]
    assert "llmexp ui" in out.splitlines()[-1]


def test_a_sqlite_store_on_a_network_is_refused_before_anything_starts(llmexp, runner, here: Path, mounted):
    mounted("nfs4")
    code, out, err = llmexp("method=Naive", "tracking=mlflow")
    assert (code, out) == (2, "")
    assert err.startswith("llmexp: no SQLite store for MLflow: ")
    assert "outputs is on nfs4, where SQLite is not safe: set MLFLOW_TRACKING_URI to a server, or tracking.uri=" in err
    assert err.count("\n") == 1
    assert (runner.ran, list(here.iterdir())) == ([], [])


@pytest.mark.parametrize("word", ["tracking=none", "tracking.uri=http://127.0.0.1:9"])
def test_runs_on_a_network_need_only_another_tracker(llmexp, runner, monkeypatch, mounted, word):
    mounted("nfs4")
    monkeypatch.setattr("llmexp.record.mlflow.record_runs", lambda folders, tracking: None)
    monkeypatch.setattr("llmexp.record.mlflow.record_report", lambda *given: False)
    assert llmexp("method=Naive", "hardware=cpu", word)[0] == 0
    assert runner.ran == ["tiny Naive"]


def test_a_run_whose_folder_cannot_be_written_is_one_line_and_stops_no_other(llmexp, runner):
    runner.endings = {"R": OSError(28, "No space left on device")}
    code, _, err = llmexp("method=Naive,R,F", *QUIET)
    assert code == 1
    assert runner.ran == ["tiny Naive", "tiny R", "tiny F"]
    (line,) = [line for line in err.splitlines() if "No space" in line]
    assert line.startswith("llmexp: tiny_R_")
    assert line.endswith("[Errno 28] No space left on device; the same command resumes it")
    assert "Traceback" not in err


def test_a_report_that_cannot_be_written_is_one_line(llmexp, runner, monkeypatch):
    def refuse(path, text):
        raise OSError(30, "Read-only file system", str(path))

    monkeypatch.setattr("llmexp.sweep.report.write_atomically", refuse)
    code, out, err = llmexp("method=Naive", *QUIET)
    assert (code, err) == (1, "llmexp: [Errno 30] Read-only file system: 'outputs/main/report.html'\n")
    assert "Naive" in out


def test_a_control_measures_one_run_twice_naive_if_it_is_there(llmexp, runner, here: Path):
    code, out, _ = llmexp("method=F,Naive", "model=tiny", "hardware=cpu", "tracking=none", "sweep.control=true")
    assert code == 0
    assert runner.ran == ["tiny F", "tiny Naive", "tiny Naive control=true"]
    assert len(list(here.glob("outputs/main/tiny_Naive_*"))) == 2
    assert llmexp("method=F", "hardware=cpu", "tracking=none", "sweep.control=true", "sweep.name=other")[0] == 0
    assert runner.ran[3:] == ["tiny F", "tiny F control=true"]
    assert "tiny on 2 x cpu: F, Naive, Naive (control)" in out
    # Each run's own command measures it alone.
    commands = [run.result().command for run in find_runs(here / "outputs" / "main")]
    assert sorted(command.rpartition(" ")[2] for command in commands) == [
        "control=true",
        "tracking=none",
        "tracking=none",
    ]
