"""`llmexp search` with made-up runs: what it prints, what it keeps, and what it refuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import made_up_trials
import pytest
from made_up_trials import HANGS, MadeUpRuns
from patience import until

from llmexp.__main__ import main
from llmexp.answers.searched import TrialSearched
from llmexp.record.result import RunStatus
from llmexp.sweep.search import searching

FIXED = ("model=tiny", "hardware=cpu", "measure=quick", "tracking=none", "engine=torch", "sweep.name=s")
LR = "optimizer.lr=tag(log, interval(1e-5, 1e-1))"
Search = Callable[..., tuple[int, str, str]]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeUpRuns:
    made_up = MadeUpRuns(tmp_path / "notes")
    monkeypatch.setattr(searching, "measure", made_up.measure)
    monkeypatch.setattr(searching, "leave_report", lambda *_: None)
    return made_up


@pytest.fixture
def search(runs: MadeUpRuns, capsys: pytest.CaptureFixture[str]) -> Search:
    def call(*words: str) -> tuple[int, str, str]:
        code = main(["search", *FIXED, *words])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def trials(out: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in out.splitlines()]


def test_the_best_trial_comes_first_with_the_words_that_start_it(search: Search, runs: MadeUpRuns) -> None:
    code, out, err = search(LR, "--trials", "12", "--minimize", "loss", "--json")
    found = trials(out)
    complete = [trial["value"] for trial in found if trial["state"] == "complete"]
    assert (code, len(found), complete) == (0, 12, sorted(complete))
    assert sorted(trial["number"] for trial in found) == list(range(12))
    assert len(set(runs.begun)) == 12
    assert f"best is trial {found[0]['number']}: llmexp model=tiny" in err
    words = found[0]["words"]
    assert f"optimizer.lr={found[0]['point']['optimizer.lr']}" in words
    assert main(["plan", *words, "--json"]) == 0
    assert Path(found[0]["folder"]).name in runs.begun


def test_the_words_of_a_trial_plan_the_run_that_was_measured(search: Search, capsys) -> None:
    _, out, _ = search("batch.micro=1,2", "--trials", "2", "--maximize", "tokens_per_s", "--json")
    best = trials(out)[0]
    main(["plan", *best["words"], "--json"])
    assert json.loads(capsys.readouterr().out)["folder"] == best["folder"]


def test_what_is_maximized_has_the_most_first(search: Search) -> None:
    code, out, _ = search("batch.micro=1,2,4", "--trials", "9", "--maximize", "tokens_per_s")
    rows = [line.split() for line in out.splitlines() if "complete" in line]
    assert (code, [row[1:3] for row in rows]) == (0, [["4", "400"], ["2", "200"], ["1", "100"]])


def test_the_same_command_measures_nothing_again_and_more_trials_go_on(search: Search, runs: MadeUpRuns) -> None:
    words = (LR, "--maximize", "tokens_per_s")
    search(*words, "--trials", "3")
    assert len(runs.begun) == 3
    search(*words, "--trials", "3")
    assert len(runs.begun) == 3
    assert "\n4  " in search(*words, "--trials", "5")[1] + search(*words, "--trials", "5")[1]
    assert len(set(runs.begun)) == 5


def test_one_seed_chooses_the_same_points_and_another_seed_others(search: Search) -> None:
    def points(seed: int, name: str) -> set[str]:
        out = search(
            LR, "--maximize", "tokens_per_s", "--trials", "4", "--json", "--seed", str(seed), f"sweep.name={name}"
        )[1]
        return {trial["point"]["optimizer.lr"] for trial in trials(out)}

    first = points(0, "a")
    assert len(first) == 4
    assert points(0, "b") == first
    assert not points(1, "c") & first


def test_a_trial_whose_loss_is_worse_is_pruned_and_says_so(search: Search) -> None:
    code, out, _ = search(LR, "--trials", "20", "--minimize", "loss", "--json")
    pruned = [trial for trial in trials(out) if trial["state"] == "pruned"]
    assert code == 0
    assert pruned
    for trial in pruned:
        assert trial["reason"].startswith("pruned at step ")
        result = json.loads((Path(trial["folder"]) / "result.json").read_text())
        assert (result["status"], result["reason"]) == ("killed", trial["reason"])
        assert trial["value"] is None


def test_without_a_pruner_every_trial_is_measured_to_its_end(search: Search) -> None:
    _, out, _ = search(LR, "--trials", "12", "--minimize", "loss", "--pruner", "none", "--json")
    assert {trial["state"] for trial in trials(out)} == {"complete"}


def test_out_of_memory_is_told_and_costs_no_exit_code_but_a_failure_does(search: Search, runs: MadeUpRuns) -> None:
    words = ("batch.micro=1,2,4", "--trials", "3", "--maximize", "tokens_per_s", "--json")
    runs.statuses = {"4": RunStatus.OOM}
    code, out, _ = search(*words)
    assert (code, [trial["state"] for trial in trials(out)]) == (0, ["complete", "complete", "oom"])
    runs.statuses = {"1": RunStatus.FAILED}
    code, out, _ = search(*words, "sweep.name=other")
    assert (code, [trial["state"] for trial in trials(out)]) == (1, ["complete", "complete", "failed"])


def test_a_metric_that_runs_lack_ends_the_search_at_the_first(search: Search, runs: MadeUpRuns) -> None:
    code, _, err = search(LR, "--trials", "5", "--maximize", "mfu")
    assert (code, len(runs.begun)) == (1, 1)
    assert "its result has no mfu" in err


def test_another_search_in_the_same_folder_is_refused(search: Search, runs: MadeUpRuns) -> None:
    search("batch.micro=1,2", "--trials", "1", "--maximize", "tokens_per_s")
    for words in (("batch.micro=1,4",), ("batch.micro=1,2", "seed=3")):
        code, _, err = search(*words, "--trials", "2", "--maximize", "tokens_per_s")
        assert (code, len(runs.begun)) == (2, 1)
        assert "outputs/s has another search" in err
        assert "choose another sweep.name" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((LR,), "name what is sought: minimize=loss or maximize=tokens_per_s"),
        ((LR, "--minimize=loss", "--maximize=mfu"), "name one of minimize and maximize, not both"),
        (("--minimize=loss",), "no choices and no interval to search in"),
        (("batch.micro=choice(2)", "--minimize=loss"), "batch.micro=choice(2) names one value"),
        ((LR, "--minimize=los"), "unknown metric of task=pretrain 'los': did you mean loss?"),
        ((LR, "--minimize=goodput_per_s"), "unknown metric of task=pretrain 'goodput_per_s'"),
        ((LR, "--minimize=loss", "--trials=0"), "trials is 0: a search has at least 1"),
        ((LR, "--minimize=loss", "--trials=many"), "trials is 'many': write a whole number"),
        ((LR, "--minimize=loss", "--seed=-1"), "seed is -1"),
        ((LR, "--minimize=loss", "--sampler=grid"), "unknown sampler 'grid': choices are tpe, random"),
        ((LR, "--minimize=loss", "--pruner=medium"), "unknown pruner 'medium': did you mean median?"),
        ((LR, "--maximize=mfu", "--pruner=median"), "pruner=median goes by the loss of a run's steps"),
        (("optimizer.lr=interval(1e-2, 1e-5)", "--minimize=loss"), "the end is not above the start"),
        (("optimizer.lr=tag(log, interval(0, 1))", "--minimize=loss"), "log needs a start above 0"),
        (("optimizer.lr=tag(lin, interval(0, 1))", "--minimize=loss"), "unknown tag 'lin'; the only one is log"),
        (("optimizer.lr=tag(log, choice(1, 2))", "--minimize=loss"), "log is for intervals"),
        (("data=interval(1, 2)", "--minimize=loss"), "data takes names: write them with commas"),
        (("batch.micro=glob(*)", "--minimize=loss"), "batch.micro=glob(*): there is no such value"),
        (("optimizer.lrs=interval(1, 2)", "--minimize=loss"), "unknown key 'optimizer.lrs'"),
        (("batch.micro=interval(1, 8)", "--minimize=loss"), "batch.micro=3.3333333333333335: must be a whole number"),
        (("batch.micro=0,1", "--minimize=loss"), "trial batch.micro=0: batch.micro"),
        (("adapter.rank=4,8", "--minimize=loss"), "adapter.rank does nothing here"),
        (("sweep.outputs=a,b", "--minimize=loss"), "changes nothing that is measured"),
        ((LR, "--minimize=loss", "budget.usd=3"), "budget does not go with a search"),
        ((LR, "--minimize=loss", "sweep.control=true"), "sweep.control does not go with a search"),
        ((LR, "--minimize=loss", "measure.order=interleaved", "measure.repeats=2"), "does not go with a search"),
        ((LR, "--minimize=loss", "hydra/launcher=slurm"), "hydra/launcher=slurm does not go with a search"),
        (("method=range(1, 3)", "--minimize=loss"), "method takes names: write them with commas"),
        ((LR, "--minimize=loss", "hydra/sweeper=llmexp"), "leave it out"),
        (("experiment=paper_table03", LR, "--minimize=loss"), "a table of runs cannot be searched"),
    ],
)
def test_wrong_words_are_refused_in_one_line_before_anything_starts(
    search: Search, runs: MadeUpRuns, words: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    code, out, err = search(*words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err
    assert runs.begun == []
    assert not (tmp_path / "outputs").exists()


def test_a_sweep_refuses_an_interval_and_names_the_search(runs: MadeUpRuns, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*FIXED, LR]) == 2
    assert capsys.readouterr().err == (
        f"llmexp: {LR}: a sweep cannot list the values of an interval: write some with commas, or use llmexp search\n"
    )


def test_the_answer_is_what_its_schema_says(search: Search, capsys: pytest.CaptureFixture[str]) -> None:
    out = search("batch.micro=1,2", "--trials", "2", "--maximize", "tokens_per_s", "--json")[1]
    main(["schema", "search"])
    schema = json.loads(capsys.readouterr().out)
    for trial in trials(out):
        assert set(trial) == set(schema["required"])
        assert trial["schema"] == {"name": "llmexp.search", "version": 1}
        TrialSearched.model_validate(trial)


def test_without_optuna_one_line_says_what_to_install(search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmexp.sweep.search.trial.find_spec", lambda _: None)
    code, _, err = search(LR, "--minimize", "loss")
    assert (code, err.count("\n")) == (2, 1)
    assert "a search needs Optuna: pip install '" in err
    assert "[search]'" in err


def test_a_search_that_is_interrupted_shows_its_trials_and_tries_the_point_again(
    search: Search, runs: MadeUpRuns, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (LR, "--trials", "3", "--maximize", "tokens_per_s")

    def interrupted(*_: object) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(searching, "measure", interrupted)
        code, out, _ = search(*words)
    assert code == 130
    assert "died" in out
    code, out, _ = search(*words, "--json")
    found = {trial["number"]: trial for trial in trials(out)}
    assert (code, sorted(found)) == (0, [0, 1, 2, 3])
    assert [found[number]["state"] for number in range(4)] == ["died", "complete", "complete", "complete"]
    assert found[1]["point"] == found[0]["point"]


class Drivers:
    """Starts drivers in processes of their own, each with a folder in which it notes the runs that it begins."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def start(self, name: str, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, made_up_trials.__file__, str(self._folder / name), "search", *FIXED, *words]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def begun(self, name: str) -> list[str]:
        folder = self._folder / name
        return [path.name for path in folder.iterdir() if path.name != HANGS] if folder.exists() else []


@pytest.mark.slow
@pytest.mark.ranks
def test_three_drivers_share_one_search_and_one_that_is_killed_is_told(tmp_path: Path) -> None:
    drivers = Drivers(tmp_path)
    words = (LR, "--trials", "9", "--minimize", "loss", "--json")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / HANGS).touch()
    killed = drivers.start("a", *words)
    until(lambda: drivers.begun("a"))
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    others = [drivers.start(name, *words) for name in ("b", "c", "d")]
    ended = [driver.communicate() for driver in others]
    assert [driver.returncode for driver in others] == [0, 0, 0], ended
    found = [{trial["number"]: trial for trial in trials(out)} for out, _ in ended]
    assert found[0] == found[1] == found[2]
    assert sorted(found[0]) == list(range(10))
    standings = Counter(trial["state"] for trial in found[0].values())
    assert (standings["died"], standings["complete"] + standings["pruned"]) == (1, 9)
    [died] = [trial for trial in found[0].values() if trial["state"] == "died"]
    [again] = [trial for trial in found[0].values() if trial["point"] == died["point"] and trial is not died]
    assert (died["number"], again["state"]) == (0, "complete")
    begun = [run for name in "bcd" for run in drivers.begun(name)]
    assert (len(begun), len(set(begun))) == (9, 9)
