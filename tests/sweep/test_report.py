from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from patience import HANG_S

from llmexp.record.folder import RunFolder, find_runs
from llmexp.record.identity import process_identity
from llmexp.record.shared_parts import SharedParts
from llmexp.report.row import read_row
from llmexp.training.plan.training_plan import TrainingPlan

QUIET = ("tracking=none", "model=tiny", "hardware=cpu")


def rows(folder: Path) -> list[tuple[str, str]]:
    """Method and state of each row that a command left."""
    with (folder / "report.csv").open() as file:
        return [(row["method"], row["state"]) for row in csv.DictReader(file)]


def test_a_command_prints_its_runs_and_leaves_all_of_the_folder_its_own_first(llmexp, runner, here: Path) -> None:
    main = here / "outputs/main"
    _, out, _ = llmexp("method=Q", *QUIET)
    assert "The report in" not in out
    _, out, _ = llmexp("method=Naive,R", *QUIET)
    assert out.count("to repeat a run, add its method, such as method=Naive: ") == 1
    assert "Q†" not in out
    assert "The report in outputs/main is of all 3 runs there" in out.splitlines()
    assert rows(main) == [("Naive", "success"), ("R", "success"), ("Q", "success")]
    assert all(f"method={method} " in (main / "report.md").read_text() for method in ("Q", "Naive", "R"))
    assert (main / "report.png").read_bytes().startswith(b"\x89PNG")
    assert "Content-Security-Policy" in (main / "report.html").read_text()


def test_runs_of_other_drivers_and_broken_folders_are_told_as_they_stand(
    llmexp, runner, here: Path, tiny_plan: Callable[..., TrainingPlan]
) -> None:
    main = here / "outputs/main"
    for method, begun in (("F", True), ("Z2", False)):
        other = RunFolder(main / tiny_plan(method).folder_name)
        other.write(other.plan_path, tiny_plan(method))
        if begun:
            other.event("running", **process_identity())
    llmexp("method=Q", *QUIET)
    (broken,) = main.glob("tiny_Q_*")
    (broken / "result.json").write_text("{}")
    code, out, _ = llmexp("method=Naive", *QUIET)
    assert code == 0
    assert rows(main) == [("Naive", "success"), ("F", "running"), ("Z2", "planned")]
    assert "unreadable: " not in out
    assert f"unreadable: {broken.relative_to(here)}/result.json is not a result" in (main / "report.md").read_text()


def test_each_run_is_read_once_for_a_report(llmexp, runner, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def note(folder: RunFolder, parts: SharedParts):
        read.append(folder.path.name)
        return read_row(folder, parts)

    llmexp("method=Q,Z2", *QUIET)
    monkeypatch.setattr("llmexp.report.table.read_row", note)
    llmexp("method=Naive,R", *QUIET)
    assert sorted(read) == sorted(run.path.name for run in find_runs(here / "outputs"))


def test_runs_that_other_libraries_measured_are_told_apart(llmexp, runner, here: Path) -> None:
    main = here / "outputs/main"
    llmexp("method=F", *QUIET)
    llmexp("method=Naive", *QUIET)
    assert "| stack |" not in (main / "report.md").read_text()
    (folder,) = map(RunFolder, main.glob("tiny_F_*"))
    folder.write(folder.result_path, folder.result().model_copy(update={"stack": "0123456789ab"}))
    llmexp("method=Naive", *QUIET)
    text = (main / "report.md").read_text()
    assert "| stack |" in text
    assert "| 0123456789ab |" in text
    assert (
        "- stack: runs whose stack differs had other code, libraries or devices; rerun=stale measures them again"
        in text
    )


HEAVY = ("mlflow", "matplotlib", "torch", "pandas")
# Runs a command line in a process of its own, with what stands for the ranks, and says on its last line what it has
# imported.
PROBE = f"""
import sys
import llmexp.launch.run
llmexp.launch.run.run_one = None  # there is nothing to measure
from llmexp.__main__ import main
code = main(sys.argv[1:])
print(code, *[name for name in {HEAVY} if name in sys.modules])
"""
TRACKED = ("method=Naive,R", "model=tiny", "hardware=cpu", f"tracking.timeout_s={HANG_S:g}")


def again() -> list[str]:
    """The exit code of the same sweep once more, and the heavy libraries that it imported."""
    done = subprocess.run([sys.executable, "-c", PROBE, *TRACKED], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1].split()


@pytest.fixture
def tracked(llmexp, runner, here: Path) -> Path:
    """The folder of a sweep of two answers, in MLflow too."""
    assert llmexp(*TRACKED)[0] == 0
    return here / "outputs" / "main"


def test_a_sweep_of_answers_imports_neither_mlflow_nor_matplotlib_and_writes_nothing(tracked: Path) -> None:
    again()  # which leaves an index of what it read
    before = {path: path.stat().st_mtime_ns for path in tracked.parent.rglob("*") if path.is_file()}
    assert again() == ["0"]
    assert {path: path.stat().st_mtime_ns for path in tracked.parent.rglob("*") if path.is_file()} == before


def test_a_lost_picture_is_drawn_and_a_lost_table_written_again(tracked: Path) -> None:
    (tracked / "report.png").unlink()
    assert again() == ["0", "matplotlib"]
    (tracked / "report.csv").write_text("another")
    assert again() == ["0", "matplotlib"]
    assert rows(tracked) == [("Naive", "success"), ("R", "success")]


@pytest.mark.slow
def test_a_lost_store_is_filled_again(tracked: Path) -> None:
    from mlflow import MlflowClient

    (tracked.parent / "mlflow.db").unlink()
    assert again()[:2] == ["0", "mlflow"]
    client = MlflowClient(f"sqlite:///{tracked.parent}/mlflow.db")
    runs = client.search_runs([client.get_experiment_by_name("llmexp").experiment_id])
    assert sorted(run.data.tags["llmexp.kind"] for run in runs) == ["run", "run", "sweep"]
    assert again() == ["0"]
