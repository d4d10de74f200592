"""A bundle has the runs' results, and with --anonymous no name of this machine, user or place."""

from __future__ import annotations

import getpass
import gzip
import json
import re
import socket
from pathlib import Path

import pytest

import llmexp
from llmexp.__main__ import main
from llmexp.bundle.anonymous import Anonymizer
from llmexp.bundle.archive import unpacked
from llmexp.bundle.export import Contents, export
from llmexp.errors import ConfigError
from llmexp.record.folder import RunFolder, find_runs
from llmexp.record.plan import RunPlan
from llmexp.tasks.resolve import resolve

GPU = "GPU-11111111-2222-3333-4444-555555555555"
NODE = "node17.cluster.example"
SENT = (
    f"jo@lab.example at 10.1.2.3, git@git.example:jo/secret.git, https://git.example/jo, {GPU}, USER=jochen on {NODE}"
)


@pytest.fixture
def named_run(make_run, tmp_path: Path) -> RunFolder:
    """A run in whose records this machine, user, their places and another machine are named."""
    run = make_run("F", metrics={"tokens_per_s": 10.5})
    result = json.loads(run.result_path.read_text())
    result["environment"] = {
        "host": NODE,
        "interpreter": f"{Path.home()}/env/bin/python",
        "distributions": {"odd": "12.8.4.1"},
        "note": f"{socket.gethostname()} {getpass.getuser()} {tmp_path}/x.json {SENT} node17",
    }
    run.result_path.write_text(json.dumps(result))
    run.event("running", host=NODE, pid=1)
    (run.repeat(0) / "trace").mkdir(parents=True)
    (run.repeat(0) / "log.0.txt").write_text(f"in {tmp_path}/y on {NODE} of {getpass.getuser()}: {SENT}\n")
    with gzip.open(run.repeat(0) / "trace" / "rank0.json.gz", "wt") as file:
        json.dump({"host_name": NODE, "at": str(tmp_path / "z.py")}, file)
    (run.path / "link.json").symlink_to(run.plan_path)
    return run


def texts(folder: Path) -> str:
    """Every name and text of an unpacked bundle."""
    contents = [
        gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    ]
    return "\n".join([*(str(path.relative_to(folder)) for path in folder.rglob("*")), *map(bytes.decode, contents)])


@pytest.mark.parametrize("suffix", [".zip", ".tar.gz", ".tgz"])
def test_an_anonymous_bundle_names_nobody(suffix: str, named_run: RunFolder, tmp_path: Path) -> None:
    into = tmp_path / f"sent{suffix}"
    export([named_run], into, Contents(logs=True, traces=True, anonymous=True))
    text = texts(unpacked(into))
    names = [socket.gethostname(), getpass.getuser(), str(Path.home()), str(tmp_path), NODE, "node17", GPU, "10.1.2.3"]
    for name in [*names, "jo@lab.example", "git.example", "jochen"]:
        assert not re.search(rf"(?<![^\W_]){re.escape(name)}(?![^\W_])", text), name
    assert "link.json" not in text
    assert "12.8.4.1" in text
    (run,) = find_runs(unpacked(into))
    read = run.result()
    assert read is not None
    assert (read.id, read.metrics["tokens_per_s"].mean) == (named_run.result().id, 10.5)
    assert read.environment["host"] == run.events()[0]["host"]
    assert read.environment["interpreter"].endswith("/bin/python")


def test_the_id_stays_that_of_the_same_plan(named_run: RunFolder, tmp_path: Path) -> None:
    export([named_run], tmp_path / "a.zip", Contents(anonymous=True))
    (run,) = find_runs(unpacked(tmp_path / "a.zip"))
    plan = RunPlan.read(run.plan_path)
    assert resolve(plan.config, []).id == plan.id == RunPlan.read(named_run.plan_path).id


def test_what_is_not_asked_for_is_left_out(named_run: RunFolder, tmp_path: Path) -> None:
    export([named_run], tmp_path / "a.zip", Contents())
    assert {path.suffix for path in unpacked(tmp_path / "a.zip").rglob("*") if path.is_file()} == {".json", ".jsonl"}


def test_secrets_are_hidden_in_logs_too(named_run: RunFolder, tmp_path: Path) -> None:
    (named_run.repeat(0) / "log.0.txt").write_text("https://jo:pass-word@git.example/x\n")
    export([named_run], tmp_path / "a.zip", Contents(logs=True))
    assert "pass-word" not in texts(unpacked(tmp_path / "a.zip"))


def test_the_same_name_is_replaced_by_the_same(tmp_path: Path) -> None:
    names = Anonymizer([("host", "a.lab.example"), ("user", "jo")])
    assert names.text("jo on a, a.lab.example, banjo, a_1") == "user-1 on host-1, host-1, banjo, host-1_1"
    assert names.text("at /data/x/m.py, /data/x/m.py and /usr/lib/y") == "at /path-1.py, /path-1.py and /usr/lib/y"
    assert names.text("127.0.0.1 at 12:30:01 by ::1") == "127.0.0.1 at 12:30:01 by ::1"
    assert names.record({"distributions": {"x": "1.2.3.4"}, "at": "1.2.3.4"})["at"] == "address-1"


@pytest.mark.parametrize(
    "place", ["/opt/a/bin:/scratch/b/c", "/scratch", "x /scratch/", "/dev/shm/jo/x", "/etc/site/y"]
)
def test_no_part_of_a_place_stays(place: str) -> None:
    told = Anonymizer().text(f"it is at {place}, 3 tokens/s and/or 1/2 of /usr/bin/env")
    assert not re.search(r"opt|scratch|shm|jo|site|b/c", told)
    assert told.endswith(", 3 tokens/s and/or 1/2 of /usr/bin/env")


def test_a_name_that_is_also_a_result_stops_the_export(named_run: RunFolder, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "tiny")
    with pytest.raises(ConfigError, match="its model 'tiny'"):
        export([named_run], tmp_path / "a.zip", Contents(anonymous=True))
    assert not list(tmp_path.glob("*a.zip*"))


@pytest.mark.parametrize(("name", "said"), [("a.rar", "ends in"), ("no/a.zip", "no folder"), ("there.zip", "exists")])
def test_where_no_bundle_can_be_written(name: str, said: str, named_run: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "there.zip").write_text("")
    with pytest.raises(ConfigError, match=said):
        export([named_run], tmp_path / name, Contents())


def test_other_commands_read_a_bundle(named_run: RunFolder, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", str(named_run.path), "--into", "b.zip", "--anonymous"]) == 0
    assert main(["report", "b.zip", "--format", "csv"]) == 0
    assert main(["compare", str(named_run.path), "b.zip"]) == 0
    assert "10.5" in capsys.readouterr().out
    assert llmexp.load("b.zip").tokens_per_s.tolist() == [10.5]


def test_reproducing_a_bundle_shows_what_it_would_start(named_run: RunFolder, tmp_path: Path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan = json.loads(named_run.plan_path.read_text())
    plan["config"]["runtime"]["setup"] = ["touch owned"]
    named_run.plan_path.write_text(json.dumps(plan))
    assert main(["export", str(named_run.path), "--into", "b.zip"]) == 0
    assert main(["reproduce", "b.zip"]) == 2
    assert "touch owned" in capsys.readouterr().err
    assert not (tmp_path / "owned").exists()
