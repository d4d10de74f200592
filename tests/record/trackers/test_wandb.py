"""What W&B's own records hold, as `wandb sync` finds them."""

from __future__ import annotations

import json
import math
import os
import shutil
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from patience import HANG_S

from llmexp.errors import ConfigError, RecordError
from llmexp.record.folder import RunFolder
from llmexp.record.trackers import sync_also
from llmexp.record.trackers.content import read
from llmexp.record.trackers.points import Point
from llmexp.record.trackers.run_tracker import TrackedRun, tracked_run
from llmexp.record.trackers.wandb import WANDB, run_id

# Writes a run that stands on standard input into a folder, as the writer's process does.
WRITE = """
import pickle, sys
from pathlib import Path
from llmexp.record.trackers.wandb import WANDB
WANDB.write(pickle.load(sys.stdin.buffer), Path(sys.argv[1]))
"""
BLOCK, HEADER = 32768, struct.Struct("<IHB")


@pytest.fixture(autouse=True)
def _a_shell_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    # Nothing answers there.
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")


@pytest.fixture
def write(tmp_path: Path):
    """Write a run, and return its folder and the records in it by their kind."""
    import pickle

    def write(run: TrackedRun) -> tuple[Path, dict[str, list[Any]]]:
        folder = tmp_path / "written"
        folder.mkdir()
        command = [sys.executable, "-c", WRITE, str(folder)]
        subprocess.run(command, input=pickle.dumps(run), timeout=HANG_S, check=True)
        return folder, records(folder)

    return write


def records(folder: Path) -> dict[str, list[Any]]:
    from wandb.proto.wandb_internal_pb2 import Record

    (file,) = folder.glob("offline-run-*/*.wandb")
    found: dict[str, list[Any]] = {}
    for record in map(Record.FromString, entries(file.read_bytes())):
        kind = record.WhichOneof("record_type")
        found.setdefault(kind, []).append(getattr(record, kind))
    return found


def entries(data: bytes) -> Iterator[bytes]:
    """The entries of a log in LevelDB's form, behind W&B's seven bytes; one may be in several parts."""
    at, entry = 7, b""
    while at + HEADER.size <= len(data):
        if BLOCK - at % BLOCK < HEADER.size:
            at += BLOCK - at % BLOCK
            continue
        _, length, part = HEADER.unpack_from(data, at)
        at += HEADER.size + length
        entry += data[at - length : at]
        if part in (1, 4):
            yield entry
            entry = b""


def items(updates: Any) -> dict[str, Any]:
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in updates}


def history(found: dict[str, list[Any]], name: str) -> list[dict[str, Any]]:
    return [row for record in found["history"] if name in (row := items(record.item))]


def test_a_run_has_what_people_look_for_in_their_project(make_run, write, tmp_path: Path):
    folder = make_run("F", repeats=2)
    (folder.figures / "broken.png").write_text("no picture, though it has the name of one")
    run = tracked_run(read(folder), "mine")
    written, found = write(run)
    (begun,) = found["run"]
    told = (begun.run_id, begun.project, begun.run_group, begun.job_type, begun.display_name)
    assert told == (run_id(run), "mine", "main", "pretrain", run.name)
    assert {"tiny", "F", "deepspeed", "cpu", "success", "unstable"} == set(begun.tags)
    assert begun.notes == run.note
    config = items(begun.config.update)
    assert (config["method"], config["batch.micro"], config["stability_reasons"]) == ("F", 2, "drift: a; noise: b")
    summary = {name: value for record in found["summary"] for name, value in items(record.update).items()}
    assert (summary["tokens_per_s"], summary["tokens_per_s_low"]) == (7000.0, 6900.0)
    assert found["exit"][0].exit_code == 0
    assert_curves(run, found)
    assert_files(folder, written, found)
    assert not (tmp_path / "home").exists()


def assert_curves(run: TrackedRun, found: dict[str, list[Any]]) -> None:
    """They have their own steps, and the times at which they happened."""
    loss = history(found, "repeat_1/loss")
    assert [row["repeat_1/step"] for row in loss] == list(range(25))
    times_s = [point.at_ms / 1e3 for point in run.points if point.name == "repeat.1/loss"]
    assert [row["_timestamp"] for row in loss] == times_s
    assert [row["repeat_1/tokens_per_s"] for row in loss] == [pytest.approx(7000)] * 25
    axes = {metric.name: metric.step_metric for metric in found["metric"]}
    assert axes["repeat_1/loss"] == "repeat_1/step"
    assert axes["system/cpu_utilization_percentage"] == "system/step"
    assert len(history(found, "system/cpu_utilization_percentage")) == 3


def assert_files(folder: RunFolder, written: Path, found: dict[str, list[Any]]) -> None:
    """Pictures, plan and result are there, and nothing else is left."""
    (place,) = written.iterdir()
    assert (place / "files" / "plan.json").read_bytes() == folder.plan_path.read_bytes()
    assert (place / "files" / "result.json").read_bytes() == folder.result_path.read_bytes()
    (row,) = history(found, "figures/loss/path")
    picture = place / "files" / row["figures/loss/path"]
    assert picture.read_bytes() == (folder.figures / "loss.png").read_bytes()
    assert sorted(path.name for path in place.iterdir() if path.suffix != ".wandb") == ["files"]
    assert not [path for path in place.rglob("*") if path.is_symlink()]


def test_a_failed_run_with_odd_values_is_written_whatever_the_shell_is_set_for(make_run, write, monkeypatch):
    for name, value in (("RUN_ID", "other"), ("NAME", "other"), ("RUN_GROUP", "other")):
        monkeypatch.setenv(f"WANDB_{name}", value)
    monkeypatch.setenv("WANDB_PROJECT", "their-project")
    points = [Point("repeat.0/loss", math.nan, 1000, 0), Point("repeat.0/loss_over_tokens", math.inf, 1000, 700)]
    run = replace(tracked_run(read(make_run(status="failed")), "mine"), points=points, metrics={"mfu": math.inf})
    _, found = write(run)
    (begun,) = found["run"]
    assert (begun.run_id, begun.display_name, begun.run_group) == (run_id(run), run.name, "main")
    assert (begun.project, begun.resumed, found["exit"][0].exit_code) == ("their-project", False, 1)
    (over,) = history(found, "repeat_0/loss_over_tokens")
    assert (over["repeat_0/tokens"], over["repeat_0/loss_over_tokens"]) == (700, math.inf)
    assert "repeat_0/step" not in over
    (loss,) = history(found, "repeat_0/loss")
    assert math.isnan(loss["repeat_0/loss"])


def test_the_id_stays_for_a_run_that_is_measured_again_and_differs_between_sweeps(make_run):
    folder = make_run()
    first = tracked_run(read(folder), "mine")
    folder.write(folder.result_path, folder.result().model_copy(update={"stack": "fedcba987654"}))
    again = tracked_run(read(folder), "mine")
    assert first.digest != again.digest
    assert run_id(first) == run_id(again) != run_id(replace(again, sweep="other"))


@pytest.mark.parametrize("mode", ["disabled", "shared", "On-line"])
def test_another_mode_of_wandb_is_refused(monkeypatch, mode):
    monkeypatch.setenv("WANDB_MODE", mode)
    with pytest.raises(ConfigError, match=f"WANDB_MODE={mode}: tracking.also=wandb takes offline or online; "):
        WANDB.check()
    monkeypatch.setenv("WANDB_MODE", "online")
    WANDB.check()


class Refusing(BaseHTTPRequestHandler):
    """A server of W&B that knows nobody."""

    asked: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.asked.append(f"{self.path} {body.decode(errors='replace')}")
        self.send_response(401)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        self.do_POST()

    def log_message(self, *said: Any) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """That server, by what it was asked."""
    monkeypatch.setattr(Refusing, "asked", [])
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as listening:
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{listening.server_port}")
        monkeypatch.setenv("WANDB_API_KEY", "ab" * 20)
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield Refusing.asked
        listening.shutdown()
        thread.join()


def test_nothing_is_sent_until_the_mode_says_so(make_run, outputs, server, monkeypatch):
    folder = make_run()
    assert sync_also([folder], "wandb", "llmexp").written == 1
    assert server == []
    shutil.rmtree(outputs / "wandb")
    monkeypatch.setenv("WANDB_MODE", "online")
    # For a program that the shell's owner goes on with.
    monkeypatch.setenv("WANDB_RESUME", "must")
    with pytest.raises(RecordError, match="CommError"):
        sync_also([folder], "wandb", "llmexp")
    assert any("UpsertBucket" in asked for asked in server)
    assert sorted(path.name for path in outputs.iterdir()) == ["main"]


def test_wandb_finds_what_it_has_to_upload_also_where_it_is_used_itself(make_run, outputs, server, monkeypatch):
    """W&B makes a folder of its library's name in the working directory."""
    folder = make_run()
    monkeypatch.chdir(outputs)
    (outputs / "wandb" / "run-1").mkdir(parents=True)
    assert sync_also([folder], "wandb", "llmexp").written == 1
    found = [str(path) for path in outputs.glob("wandb/*/*/offline-run-*")]
    command = [sys.executable, "-m", "wandb", "sync", *found]
    subprocess.run(command, capture_output=True, timeout=HANG_S, check=False)
    assert any(asked.startswith("/graphql") for asked in server)


def test_a_folder_with_an_odd_name_is_written(make_run, outputs):
    folder = make_run()
    odd = folder.path.with_name(os.fsdecode(b"mine, \xff (copy)\n"))
    folder.path.rename(odd)
    assert sync_also([RunFolder(odd)], "wandb", "llmexp").written == 1
    assert sync_also([RunFolder(odd)], "tensorboard", "llmexp").written == 1
