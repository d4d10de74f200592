"""A sweep's folder has files that another version of llmexp wrote.

Each command says so in a line, and tells the other runs.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from llmexp import __version__
from llmexp.record.folder import RunFolder

NO_VERSION, VERSION = (
    "it does not say which version of llmexp wrote it: ",
    "llmexp 9.1 wrote it: read it with that version, or move ",
)


def edited(name: str, edit: Callable[[dict], object]) -> Callable[[RunFolder], None]:
    def damage(run: RunFolder) -> None:
        record = json.loads((run.path / name).read_text())
        edit(record)
        (run.path / name).write_text(json.dumps(record))
        (run.path.parent / ".index.json").unlink(missing_ok=True)

    return damage


def unnamed_event(run: RunFolder) -> None:
    run.result_path.unlink()
    run.events_path.write_text('{"when": "then", "written_by": "9.1"}\n')


DAMAGES = {
    "result.json is not a result of this llmexp": [
        (
            edited("result.json", lambda result: result.update(color="red", written_by="9.1")),
            "color: Extra inputs",
            VERSION,
        ),
        (
            edited("result.json", lambda result: (result.pop("hardware"), result.pop("written_by"))),
            "hardware: Field required",
            NO_VERSION,
        ),
        (
            edited(
                "result.json",
                lambda result: result.update(
                    status="lost", written_by="", environment={"distributions": {"llmexp": "9.1"}}
                ),
            ),
            "status: Input should be",
            VERSION,
        ),
    ],
    "plan.json is not a plan of this llmexp": [
        (
            edited("plan.json", lambda plan: (plan["config"].pop("engine"), plan.update(written_by="9.1"))),
            "config.engine: Field required",
            VERSION,
        ),
        (
            edited("plan.json", lambda plan: (plan.pop("batch"), plan.pop("written_by"))),
            "batch: Field required",
            NO_VERSION,
        ),
    ],
    "events.jsonl is not a list of events of this llmexp": [(unnamed_event, "it has no 'status'", VERSION)],
}
CASES = [(file, *case) for file, cases in DAMAGES.items() for case in cases]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the outputs of the first test's sweep are kept, of which each later one has a copy."""
    return tmp_path_factory.mktemp("swept") / "outputs"


@pytest.fixture
def runs(llmexp, runner, here: Path, swept: Path) -> dict[str, RunFolder]:
    """Two runs of the sweep 'main' and one of 'other', by method."""
    if swept.exists():
        shutil.copytree(swept, here / "outputs")
    else:
        llmexp("method=F,R", "model=tiny", "hardware=cpu", "tracking=none")
        llmexp("method=Z3", "model=tiny", "hardware=cpu", "tracking=none", "sweep.name=other")
        shutil.copytree(here / "outputs", swept)
    return {path.name.split("_")[1]: RunFolder(path) for path in here.glob("outputs/*/tiny_*")}


@pytest.mark.parametrize(("file", "damage", "wrong", "writer"), CASES)
def test_status_report_and_sync_say_it_in_a_line_and_tell_the_others(
    file, damage, wrong, writer, llmexp, runs, here: Path, empty_store: Path
):
    damage(runs["F"])
    shutil.copy(empty_store, here / "mlflow.db")
    tracking = f"sqlite:///{here}/mlflow.db"
    for words, code in ((("status",), 0), (("report",), 0), (("sync", "--uri", tracking), 1)):
        ended, out, err = llmexp(*words)
        [line] = [line for line in (out + err).splitlines() if file in line]
        assert (ended, wrong in line, writer in line, __version__ in line) == (code, True, True, True), line
        assert "Traceback" not in err
    assert "3 runs: 2 success, 1 unreadable" in llmexp("status")[1]
    assert "0 recorded, 2 unchanged, 1 unreadable" in llmexp("sync", "--uri", tracking)[1]


def test_the_same_sweep_leaves_such_a_run_and_does_the_others(llmexp, runner, runs):
    edited("result.json", lambda result: result.update(color="red", written_by="9.1"))(runs["F"])
    runs["R"].result_path.unlink()
    runner.ran.clear()
    code, out, err = llmexp("method=F,R", "model=tiny", "hardware=cpu", "tracking=none")
    assert (code, runner.ran) == (1, ["tiny R"])
    [line] = [line for line in err.splitlines() if "result.json is not a result" in line]
    assert line.startswith("llmexp: ")
    assert VERSION in line
    assert "Traceback" not in out + err


def test_a_sibling_of_another_version_says_nothing_of_a_run(llmexp, runner, here: Path):
    llmexp("method=F", "model=tiny", "hardware=cpu", "tracking=none", "batch.micro=2")
    [path] = here.glob("outputs/main/tiny_*")
    edited("result.json", lambda result: result.update(color="red"))(RunFolder(path))
    assert llmexp("method=F", "model=tiny", "hardware=cpu", "tracking=none", "batch.micro=4")[0] == 0
