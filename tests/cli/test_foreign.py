"""A folder that somebody else has made is read as data, and what it asks for is done where a person says so."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from llmexp.cli.copying import copy_missing
from llmexp.record.folder import RunFolder, find_runs
from llmexp.record.mlflow.tags import DIGEST_TAG

RECORDS = ("plan.json", "result.json", "events.jsonl")
OBEYED = "\x1b]0;owned\x07\x1b[2J"


def change(path: Path, edit: Callable[[dict], object]) -> None:
    record = json.loads(path.read_text())
    edit(record)
    path.write_text(json.dumps(record))


def replaced(name: str, put: Callable[[Path], object]) -> Callable[[RunFolder], None]:
    def make(run: RunFolder) -> None:
        for gone in {name, "result.json" if name == "events.jsonl" else name}:
            (run.path / gone).unlink(missing_ok=True)
        put(run.path / name)

    return make


def strange_names(run: RunFolder) -> None:
    for name in ("repeat.0.bak", "repeat.x", "previous/.nfs0001", "repeat.0"):
        (run.path / name).mkdir(parents=True)


KINDS: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "values in values": lambda path: path.write_text("[" * 100_000 + "]" * 100_000),
    "a folder": Path.mkdir,
    "no text": lambda path: path.write_bytes(b"\xff\xfe\x00"),
    "a link to itself": lambda path: path.symlink_to(path),
    "too large": lambda path: os.truncate(os.open(path, os.O_CREAT | os.O_WRONLY), 2**31),
}
ODDITIES = {f"{name} is {kind}": replaced(name, put) for name in RECORDS for kind, put in KINDS.items()} | {
    "strange names": strange_names
}


@pytest.fixture(autouse=True)
def in_time() -> Iterator[None]:
    """A pipe would be waited for without end."""
    signal.alarm(120)
    yield
    signal.alarm(0)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the outputs of the first test's sweep are kept, of which each later one has a copy."""
    return tmp_path_factory.mktemp("swept") / "outputs"


@pytest.fixture
def runs(llmexp, runner, here: Path, swept: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, RunFolder]:
    """Three ended runs of a sweep, by method."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    if swept.exists():
        shutil.copytree(swept, here / "outputs")
    else:
        assert llmexp("method=F,R,Z3", "model=tiny", "hardware=cpu", "tracking=none")[0] == 0
        shutil.copytree(here / "outputs", swept)
    return {path.name.split("_")[1]: RunFolder(path) for path in here.glob("outputs/*/tiny_*")}


@pytest.mark.parametrize("oddity", ODDITIES)
def test_an_odd_folder_is_told_in_a_line_and_hides_no_other(oddity: str, llmexp, runs) -> None:
    ODDITIES[oddity](runs["R"])
    for words in (("status",), ("report",)):
        code, out, err = llmexp(*words)
        assert code in (0, 1), err
        assert "Traceback" not in out + err
        for method in ("F", "Z3"):
            assert (f"tiny_{method}_" if words == ("status",) else f"  {method} ") in out
    assert "3 runs" in llmexp("status")[1]


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A server that nobody ought to call."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        yield server


def test_a_tracker_that_a_folder_names_gets_nothing_without_a_word(
    llmexp, runs, listener, monkeypatch, here: Path
) -> None:
    uri = f"http://127.0.0.1:{listener.getsockname()[1]}"
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "my-own-token")
    change(runs["F"].plan_path, lambda plan: plan["config"]["tracking"].update(name="mlflow", uri=uri))
    code, _, err = llmexp("sync")
    assert code == 2
    assert f"1 to {uri}" in err
    assert "--yes" in err
    assert "--uri" in err
    copy_missing(find_runs(here / "outputs"))
    with pytest.raises(TimeoutError):
        listener.accept()


def test_what_a_link_leads_to_is_not_copied(llmexp, runs, here: Path, empty_store: Path) -> None:
    (here / "id_ed25519").write_text("a private key")
    figures = runs["F"].figures
    figures.mkdir()
    (figures / "key.txt").symlink_to(here / "id_ed25519")
    (figures / "mine.txt").write_text("a picture")
    (here / "mlflow.db").write_bytes(empty_store.read_bytes())
    assert llmexp("sync", "--uri", f"sqlite:///{here}/mlflow.db")[0] == 0
    copied = [path.read_text(errors="replace") for path in (here / "mlartifacts").rglob("*") if path.is_file()]
    assert "a picture" in copied
    assert "a private key" not in copied


def test_what_a_plan_would_start_is_shown_before_it_is_measured_again(llmexp, runs, runner, here: Path) -> None:
    runner.ran.clear()
    change(
        runs["F"].plan_path,
        lambda plan: plan["config"]["runtime"].update(setup=[f"touch {here}/ran"], environment={"LD_PRELOAD": "x.so"}),
    )
    code, _, err = llmexp("reproduce", str(runs["F"].path))
    assert (code, runner.ran, (here / "ran").exists()) == (2, [], False)
    for told in (f'runtime.setup=["touch {here}/ran"]', 'runtime.environment={"LD_PRELOAD": "x.so"}', "--yes"):
        assert told in err


def test_a_name_that_leads_out_of_the_outputs_is_refused(llmexp, runs, runner, here: Path) -> None:
    runner.ran.clear()
    change(runs["F"].plan_path, lambda plan: plan["config"]["model"].update(name="../../../evil"))
    code, _, err = llmexp("reproduce", str(runs["F"].path))
    assert (code, runner.ran) == (1, [])
    assert "plan.json is not a plan" in err


def test_a_command_that_no_shell_reads_is_told(llmexp, runs) -> None:
    def of_version_1(plan: dict[str, Any]) -> None:
        del plan["overrides"]
        plan["rerun_command"] = "python -m llmexp 'method=F"

    change(runs["F"].plan_path, of_version_1)
    code, _, err = llmexp("reproduce", str(runs["F"].path))
    assert (code, "plan.json is not a plan" in err, "No closing quotation" in err) == (1, True, True), err


def test_tables_are_written_below_their_folder_only(llmexp, runs, here: Path) -> None:
    change(runs["F"].plan_path, lambda plan: plan["config"]["hardware"].update(name=f"{here}/evil"))
    change(runs["F"].result_path, lambda result: result.update(hardware=f"{here}/evil"))
    code, _, err = llmexp("report", str(runs["F"].path), "--into", "tables")
    assert code == 1
    assert "/evil' is not written" in err
    assert not (here / "evil").exists()


def test_nothing_that_a_terminal_obeys_reaches_it(llmexp, runs, here: Path) -> None:
    change(runs["F"].result_path, lambda result: result.update(status="failed", reason=f"it broke{OBEYED}"))
    log = runs["F"].repeat(0) / "log.0.txt"
    log.parent.mkdir()
    log.write_text(f"step 1\rstep 2{OBEYED}\n")
    change(runs["Z3"].plan_path, lambda plan: plan.update({f"extra{OBEYED}": 1}))
    run, other = str(runs["F"].path), str(runs["R"].path)
    printed = [llmexp(*words) for words in (("status",), ("report",), ("logs", run), ("compare", run, other))]
    assert "it broke?]0;owned" in printed[0][1]
    assert "step 1\nstep 2?" in printed[2][1]
    for _, out, err in printed:
        assert not {"\x1b", "\x07", "\r"} & set(out + err)


def test_a_spreadsheet_computes_nothing_that_a_folder_says(llmexp, runs) -> None:
    change(runs["F"].result_path, lambda result: result.update(status="failed", reason='=HYPERLINK("http://evil","x")'))
    _, out, _ = llmexp("report", str(runs["F"].path), "--format", "csv")
    (row,) = csv.DictReader(io.StringIO(out))
    assert row["reason"] == """'=HYPERLINK("http://evil","x")"""


def test_sync_leaves_the_sweep_s_page_and_its_columns_in_mlflow_too(llmexp, runs, here: Path, empty_store) -> None:
    """The runs were measured with tracking=none."""
    (here / "mlflow.db").write_bytes(empty_store.read_bytes())
    uri = f"sqlite:///{here}/mlflow.db"
    sync = ("sync", "--uri", uri)
    assert llmexp(*sync)[0] == 0
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("llmexp")
    assert experiment is not None

    def parent() -> Any:
        (found,) = client.search_runs([experiment.experiment_id], "tags.`llmexp.kind` = 'sweep'")
        return found

    page = parent().data.tags["mlflow.note.content"]
    assert "tokens/s" in page
    assert all(method in page for method in ("F", "R"))
    assert any("metrics.`tokens_per_s`" in value for value in experiment.tags.values())
    digest = parent().data.tags[DIGEST_TAG]
    client.delete_tag(parent().info.run_id, DIGEST_TAG)
    client.delete_tag(parent().info.run_id, "mlflow.note.content")
    assert "0 recorded" in llmexp(*sync)[1]
    assert parent().data.tags[DIGEST_TAG] == digest
    assert parent().data.tags["mlflow.note.content"] == page
