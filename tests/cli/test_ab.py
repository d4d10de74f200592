"""`llmexp ab` with sides whose Python is a program that leaves a run's folder at once, as fast as its test says."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from patience import until

from llmexp.record.result import Metric

METHODS = ("Naive", "R")
WORDS = ("--", "method=Naive,R", "model=tiny", "hardware=cpu", "measure=smoke")
# It starts some six hundred times, and imports nothing that takes long.
PROGRAM = """#!{python} -SE
import os, sys, time
from _random import Random
from binascii import crc32
speeds, ended, folder = {speeds}, {ended!r}, {folder!r}
words = dict(word.split("=", 1) for word in sys.argv if "=" in word)
if "plan" in sys.argv:
    sys.exit({plans})
if "-m" not in sys.argv:
    sys.exit()
with open(folder + "/asked", "a") as file:
    file.write(words["sweep.name"] + "\\n")
if ended == "waits":
    with open(folder + "/pid", "w") as file:
        file.write(str(os.getpid()))
    time.sleep(1000)
if ended == "refused":
    sys.exit("llmexp: unknown engine 'new'")
into = words["sweep.outputs"] + "/" + words["sweep.name"]
if os.path.exists(into):
    import shutil
    shutil.rmtree(into)
[name] = [name for name in os.listdir(folder + "/templates") if words["method"] + "_" in name]
os.makedirs(into + "/" + name)
draw = Random(crc32((words["sweep.name"].partition("-")[2] + words["sweep.name"][0]).encode()))
drawn = [1 + {noise} * (2 * draw.random() - 1) for _ in range(2)]
speed, step_time_s = 100 * speeds[words["method"]] * drawn[0], 100 * {step} * drawn[1]
failed = words["method"] == ended
for file in os.listdir(folder + "/templates/" + name):
    with open(folder + "/templates/" + name + "/" + file) as template:
        text = template.read()
    if file == "result.json":
        text = text.partition({between!r})[2 if failed else 0]
        text = text.replace("-1.5", repr(speed)).replace("-2.5", repr(step_time_s))
    with open(into + "/" + name + "/" + file, "w") as copy:
        copy.write(text)
sys.exit(failed)
"""
# Of a template's result: its end as a success, and as a failure. The numbers stand for those of each run.
BETWEEN = "\n---\n"
MEANS = {"tokens_per_s": -1.5, "step_time_s": -2.5}


@pytest.fixture
def side(make_run, tmp_path: Path):
    """Make an environment whose runs are as fast as the speeds say, over the same made-up runs."""
    for method in METHODS:
        metrics = {name: Metric(mean=mean, n=1) for name, mean in MEANS.items()}
        path = make_run(method, metrics=metrics, sweep__name="templates").result_path
        result = json.loads(path.read_text()) | {"repeats": 1}
        failed = result | {"status": "failed", "reason": "it broke", "metrics": {}}
        path.write_text(json.dumps(result) + BETWEEN + json.dumps(failed))

    def make(
        name: str,
        speeds: dict[str, float] | None = None,
        ended: str = "",
        plans: object = 0,
        noise: float = 0.003,
        step_time_s: float = 1.0,
    ) -> str:
        folder = tmp_path / name / "bin"
        folder.mkdir(parents=True)
        told = {
            "speeds": dict.fromkeys(METHODS, 1.0) | (speeds or {}),
            "ended": ended,
            "plans": repr(plans),
            "noise": noise,
            "step": step_time_s,
            "between": BETWEEN,
        }
        python = folder / "python"
        python.write_text(PROGRAM.format(python=sys.executable, folder=str(tmp_path), **told))
        python.chmod(python.stat().st_mode | stat.S_IXUSR)
        return str(folder.parent)

    return make


def asked(folder: Path) -> list[str]:
    return (folder / "asked").read_text().split() if (folder / "asked").exists() else []


def test_equal_sides_pass(llmexp, side, tmp_path):
    code, out, err = llmexp("ab", side("old"), side("new"), *WORDS)
    assert (code, "2 rows in both: 2 within noise" in out) == (0, True), out + err
    assert "control: Naive with a against itself in the same turns:" in out
    assert len(asked(tmp_path)) == len(set(asked(tmp_path))) == 6 * (2 * 2 + 1)
    assert "round 1 of 6 | Naive | a (" in err


def test_a_row_that_is_slower_fails(llmexp, side):
    code, out, _ = llmexp("ab", side("old"), side("new", {"R": 0.9}), *WORDS)
    assert (code, "1 within noise, 1 slower" in out) == (1, True), out


def test_a_row_that_is_faster_passes(llmexp, side):
    code, out, _ = llmexp("ab", side("old"), side("new", {"Naive": 1.1}), *WORDS)
    assert (code, "1 faster, 1 within noise" in out) == (0, True), out


def test_a_row_that_the_second_side_loses_fails_and_has_no_more_turns(llmexp, side, tmp_path):
    code, out, _ = llmexp("ab", side("old"), side("new", ended="R"), *WORDS)
    assert (code, "1 within noise, 1 lost" in out) == (1, True), out
    assert "measured with the first side, and with the second failed: it broke" in out
    assert [turn for turn in asked(tmp_path) if turn.endswith("-2")] == ["b-1-2", "a-1-2"]


def test_the_same_command_keeps_whole_blocks_and_measures_a_half_one_again(llmexp, side, tmp_path):
    words = ("ab", side("old"), side("new"), *WORDS, "sweep.name=kept")
    assert llmexp(*words)[0] == 0
    (tmp_path / "asked").unlink()
    [result] = tmp_path.glob("outputs/kept/b-2-2/*/result.json")
    result.unlink()
    code, out, _ = llmexp(*words)
    assert (code, "2 within noise" in out) == (0, True), out
    assert sorted(asked(tmp_path)) == ["a-2-2", "b-2-2"]


def test_turns_of_other_sides_are_not_taken_for_these(llmexp, side, tmp_path):
    old, words = side("old"), (*WORDS, "sweep.name=kept")
    assert llmexp("ab", old, side("new"), *words)[0] == 0
    code, _, err = llmexp("ab", old, side("newer"), *words)
    assert (code, "turns of another comparison (other b)" in err) == (2, True), err
    assert llmexp("ab", old, side("newest"), *words, "rerun=all")[0] == 0


def test_a_turn_that_leaves_no_result_is_not_given_that_of_before(llmexp, side, tmp_path):
    """Else the speed of other sides would be taken for its own."""
    old, words = side("old"), (*WORDS, "sweep.name=kept")
    assert llmexp("ab", old, side("slow", dict.fromkeys(METHODS, 0.8)), *words)[0] == 1
    equal = side("equal", ended="refused")
    code, _, err = llmexp("ab", old, equal, *words, "rerun=all")
    assert (code, "cannot run" in err) == (2, True), err
    python = Path(equal, "bin", "python")
    python.write_text(python.read_text().replace("'refused'", "''", 1))
    code, out, err = llmexp("ab", old, equal, *words)
    assert (code, "2 rows in both: 2 within noise" in out) == (0, True), out + err
    assert len(list(tmp_path.glob("outputs/kept/previous/1/*"))) == 6 * (2 * 2 + 1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_turn_and_removes_the_checkout(side, tmp_path, number):
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b")
    for words in (("init", "--quiet"), ("commit", "--quiet", "--allow-empty", "-m", "one")):
        subprocess.run([*git, *words], check=True)
    command = [sys.executable, "-m", "llmexp", "ab", side("old", ended="waits"), "HEAD", *WORDS]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as program:
        assert program.stderr
        # Planning says something too where a busy machine takes long.
        assert any(b"round 1 of 6" in line for line in program.stderr)
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        program.send_signal(number)
        said = program.stderr.read()
    assert (program.returncode, b"the same command resumes" in said) == (130, True)
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))
    # A checkout is a folder of its own, which git lists.
    listed = subprocess.run([*git, "worktree", "list"], capture_output=True, text=True, check=True).stdout
    assert (len(listed.splitlines()), list(tmp_path.glob("llmexp-ab-*"))) == (1, [])


def test_another_metric_is_compared_with_its_own_better_direction(llmexp, side):
    code, out, err = llmexp("ab", side("old"), side("new", step_time_s=1.1), "--metric", "step_time_s", *WORDS)
    assert (code, "2 worse" in out, "step_time_s" in out) == (1, True, True), out + err


def test_a_row_without_an_answer_fails_only_a_strict_gate(llmexp, side):
    words = ("ab", side("old", noise=0.2), side("new", noise=0.2), *WORDS, "sweep.name=kept")
    code, out, _ = llmexp(*words)
    assert (code, "2 cannot tell" in out) == (0, True), out
    assert llmexp("ab", "--strict", *words[1:])[0] == 1


def test_a_side_that_refuses_what_was_planned_ends_it_with_its_own_words(llmexp, side):
    code, _, err = llmexp("ab", side("old"), side("new", ended="refused"), *WORDS)
    assert code == 2
    assert "cannot run method=Naive" in err
    assert "unknown engine 'new'; " in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("HEAD", "HEAD"), "no run given"),
        (("no_such_commit", "HEAD", *WORDS), "no_such_commit does not exist"),
        (("{old}", "{refusing}", *WORDS), "cannot run this: it cannot"),
        (("{old}", "{old}", "--", "method=Naiv"), "Naiv"),
        (("{old}", "engine=no_such", *WORDS), "no_such"),
        (("{old}", "method=F,R", "--", "method=Naive", "model=tiny", "hardware=cpu"), "the sides make 1 and 2 runs"),
        (("{old}", "{old}", *WORDS, "sweep.control=true"), "a control is always measured"),
        (("{old}", "{old}", "--repeats", "3", *WORDS), "of at least 4"),
        (("{old}", "{old}", "--margin", "2", *WORDS), "--margin is '2'"),
        (("{old}", "{old}", "--metric", "speed", *WORDS), "unknown metric with a better direction 'speed'"),
    ],
)
def test_bad_input_ends_with_one_line_before_anything_is_measured(llmexp, side, tmp_path, monkeypatch, words, said):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    sides = {"old": side("old"), "refusing": side("refusing", plans="llmexp: it cannot")}
    code, _, err = llmexp("ab", *(word.format(**sides) for word in words))
    assert (code, len(err.splitlines()), said in err) == (2, 1, True), err
    assert asked(tmp_path) == []


def test_what_lies_in_outputs_is_read_as_any_sweep(llmexp, side, tmp_path):
    llmexp("ab", side("old"), side("new", {"R": 0.9}), *WORDS, "sweep.name=kept")
    assert json.loads((tmp_path / "outputs" / "kept" / "ab.json").read_text())["words"]
    code, out, _ = llmexp("compare", "outputs/kept/a-*", "--to", "outputs/kept/b-*", "--pool")
    assert (code, "1 slower" in out) == (1, True), out
