"""Runs on their way to a tracker of another package, which a process of its own writes."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest
from patience import HANG_S

from llmexp.errors import RecordError
from llmexp.record.identity import process_identity
from llmexp.record.trackers import record_also, sync_also
from llmexp.schema import TrackingConfig

PASSWORD = "hunter2hunter2"


def tracking(*also: str, timeout_s: float = HANG_S) -> TrackingConfig:
    return TrackingConfig(name="none", also=also, timeout_s=timeout_s)


def copies(outputs: Path, tracker: str = "guest") -> dict[str, str]:
    return {path.parent.name: path.read_text() for path in outputs.glob(f"{tracker}/*/*/run.txt")}


def only_line(capsys: pytest.CaptureFixture[str]) -> str:
    out, err = capsys.readouterr()
    assert out == ""
    [line] = err.splitlines()
    return str(line)


def test_a_run_lies_in_the_trackers_folder_and_nothing_beside_it(make_run, guest, outputs):
    folder = make_run("F", repeats=2)
    record_also([folder], tracking("guest"))
    [text] = copies(outputs).values()
    assert list(copies(outputs)) == [folder.path.name]
    for said in ("status='success'", "'tokens_per_s': 7000.0", "name='repeat.1/loss'", "project='llmexp'"):
        assert said in text
    assert sorted(path.name for path in outputs.iterdir()) == ["guest", "main"]


def test_only_what_has_changed_is_written_again_and_takes_the_place_of_the_earlier_copy(make_run, guest, outputs):
    folders = [make_run(method) for method in ("Naive", "F")]
    first, second = (sync_also(folders, "guest", "llmexp") for _ in range(2))
    assert (first.written, second.written, second.unchanged) == (2, 0, 2)
    (outputs / "guest" / "main" / folders[1].path.name / "left.txt").touch()
    result = folders[1].result().model_copy(update={"stack": "fedcba987654"})
    folders[1].write(folders[1].result_path, result)
    third = sync_also(folders, "guest", "llmexp")
    assert (third.written, third.unchanged) == (1, 1)
    assert "fedcba987654" in copies(outputs)[folders[1].path.name]
    assert not list(outputs.rglob("left.txt"))


def test_a_copy_that_was_removed_is_written_again(make_run, guest, outputs):
    folder = make_run()
    sync_also([folder], "guest", "llmexp")
    for path in (outputs / "guest" / "main" / folder.path.name).iterdir():
        path.unlink()
    assert sync_also([folder], "guest", "llmexp").written == 1


def test_runs_that_go_on_and_unreadable_ones_are_left_out_and_stop_no_other(make_run, guest, outputs):
    goes_on, broken, cut, whole = make_run("F", status=None), make_run("R"), make_run("Z2"), make_run("Z3")
    goes_on.event("running", **process_identity())
    broken.result_path.write_text("{")
    (cut.repeat(0) / "samples.0.jsonl").write_text("{}\n{}\n")
    summary = sync_also([goes_on, broken, cut, whole], "guest", "llmexp")
    assert (summary.written, summary.not_ended) == (1, 1)
    assert [str(one.path) in why for one, why in zip((broken, cut), summary.unreadable, strict=True)] == [True, True]
    assert list(copies(outputs)) == [whole.path.name]


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("raise ConfigError('log in first')", "log in first"),
        ("print('noise'); sys.stderr.write('out of luck\\n'); os._exit(3)", "out of luck"),
        (f"raise OSError('no https://me:{PASSWORD}@example.org')", "no https://***@example.org"),
    ],
)
def test_a_tracker_that_fails_costs_a_line_and_later_runs_nothing(
    make_run, guest, outputs, capsys, monkeypatch, does, said
):
    monkeypatch.setenv("GUEST_DOES", does)
    record_also([make_run("F")], tracking("guest"))
    line = only_line(capsys)
    assert line.startswith("llmexp: not recorded in guest: ")
    assert said in line
    assert "`llmexp sync` records them later" in line
    assert PASSWORD not in line
    later = make_run("R")
    record_also([later], tracking("guest"))
    assert capsys.readouterr() == ("", "")
    assert sorted(path.name for path in outputs.iterdir()) == ["main"]
    with pytest.raises(RecordError, match=re.escape(said)):
        sync_also([later], "guest", "llmexp")


def test_a_tracker_that_takes_too_long_is_ended_with_what_it_has_started(
    make_run, guest, tmp_path, capsys, monkeypatch
):
    told = tmp_path / "pid"
    child = "[sys.executable, '-c', 'import time; time.sleep(1000)']"
    wait = f"open({str(told)!r}, 'w').write(str(subprocess.Popen({child}).pid)); time.sleep(1000)"
    monkeypatch.setenv("GUEST_DOES", wait)
    record_also([make_run()], tracking("guest", timeout_s=3))
    assert "no answer within tracking.timeout_s=3" in only_line(capsys)
    deadline_s = time.monotonic() + HANG_S
    while told.exists() and _lives(int(told.read_text())):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def _lives(pid: int) -> bool:
    try:
        return "zombie" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_one_tracker_that_fails_keeps_no_other_from_the_run(make_run, guest, outputs, capsys):
    record_also([make_run()], tracking("absent", "guest"))
    assert "unknown tracker 'absent'" in only_line(capsys)
    assert len(copies(outputs)) == 1


def test_a_package_that_cannot_be_imported_costs_a_line(make_run, guest, capsys):
    guest.write_text("import absent")
    record_also([make_run()], tracking("guest"))
    assert "package guest: llmexp.trackers guest = guest:GUEST cannot be loaded" in only_line(capsys)


def test_a_tracker_leaves_the_drivers_environment_and_folder_alone(make_run, guest, capfd, monkeypatch):
    does = "os.environ['LEFT'] = 'behind'; os.chdir('/'); print('noise'); os.system('echo more noise')"
    monkeypatch.setenv("GUEST_DOES", does)
    assert sync_also([make_run()], "guest", "llmexp").written == 1
    assert "LEFT" not in os.environ
    assert capfd.readouterr() == ("", "")


def test_secrets_are_hidden_in_all_that_a_tracker_gets(make_run, guest, outputs, monkeypatch):
    folder = make_run(engine__options={"note": "a-value-that-nobody-sees"})
    (folder.repeat(0) / "log.0.txt").write_text(f"a-value-that-nobody-sees https://me:{PASSWORD}@example.org\n")
    monkeypatch.setenv("MY_API_KEY", "a-value-that-nobody-sees")
    sync_also([folder], "guest", "llmexp")
    [text] = copies(outputs).values()
    assert "'engine.options.note': '***'" in text
    assert "*** https://***@example.org" in text
    assert PASSWORD not in text
    assert "nobody-sees" not in text


def test_a_folder_of_any_name_is_copied(make_run, guest, outputs):
    folder = make_run()
    odd = os.fsdecode(b"a run, of (mine) \xff\n") + "é" * 100
    folder.path.rename(folder.path.with_name(odd))
    summary = sync_also([type(folder)(folder.path.with_name(odd))], "guest", "llmexp")
    assert (summary.written, list(copies(outputs))) == (1, [odd])


def test_a_loss_that_is_no_number_reaches_the_tracker(make_run, write_samples, guest, outputs):
    folder = make_run()
    for rank in (0, 1):
        write_samples(folder.repeat(0), rank, [(0.1, float("nan"))] * 2)
    assert sync_also([folder], "guest", "llmexp").written == 1
    [text] = copies(outputs).values()
    assert "Point(name='repeat.0/loss', value=nan" in text
