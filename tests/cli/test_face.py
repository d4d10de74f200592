"""llmexp.plan and llmexp.run, as a script, a notebook or CI calls them."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest
from patience import HANG_S, until

import llmexp
from llmexp.answers.planned import PlannedRun
from llmexp.errors import ConfigError
from llmexp.record.folder import find_runs

PLANNED = ("model=7b", "hardware=a800", "method=R,R+Z3")
SMALL = (
    *("model=tiny", "hardware=cpu", "engine=script", "engine.options.command=train.py", "parallelism.dp=1"),
    *("data.seq_len=16", "tracking=none", "measure=smoke", "measure.threads_per_rank=1"),
)
# A program that trains nothing, so that no rank imports a model.
TRAIN = """
import time
from llmexp import hook

while True:
    time.sleep(0.01)
    hook.step(tokens=16, loss=1.0)
"""


def started(program: str, folder: Path) -> subprocess.Popen[str]:
    """A program without a terminal, which has only what this test gives it."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW")}
    (folder / "train.py").write_text(TRAIN)
    return subprocess.Popen(
        [sys.executable, "-c", f"import llmexp\nSMALL = {SMALL}\n{dedent(program)}"],
        cwd=folder,
        env=env | {"CUDA_VISIBLE_DEVICES": ""},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_plan_answers_whether_each_run_fits_how_fast_it_is_and_what_it_costs(capfd: pytest.CaptureFixture[str]) -> None:
    whole, sharded = llmexp.plan(*PLANNED)
    assert (whole.name, whole.fits, sharded.name, sharded.fits) == ("7b R", "no", "7b R+Z3", "yes")
    assert whole.skipped is not None
    assert whole.skipped.code == "memory"
    assert whole.skipped.reason.startswith("needs at least 125.5 GiB on the device")
    assert (whole.cost.held_s, sharded.skipped, sharded.cost.source) == (0.0, None, "predicted")
    assert sharded.memory is not None
    assert (
        sharded.memory.state_bytes
        < sharded.memory.need_bytes
        <= sharded.memory.most_bytes
        < sharded.memory.capacity_bytes
        == 80 * 2**30
    )
    assert sharded.speed is not None
    assert (sharded.speed.unit, sharded.speed.per_device) == ("tokens/s", 592.35)
    predicted = sharded.plan.predicted
    assert predicted is not None
    assert predicted.low < predicted.rate < predicted.high
    work = sharded.plan.samples * sharded.plan.amount * sharded.plan.config.measure.repeats
    assert sharded.cost.held_s == pytest.approx(work / predicted.rate)
    assert sharded.plan.config.model.name == "7b"
    assert Path(sharded.folder).name == sharded.plan.folder_name
    assert capfd.readouterr() == ("", "")


def test_plan_is_what_the_command_prints_as_json(llmexp_main: Callable[..., str]) -> None:
    printed = llmexp_main("plan", "--json", *PLANNED).splitlines()
    assert [PlannedRun.model_validate_json(line) for line in printed] == llmexp.plan(*PLANNED)
    assert {(line["schema"]["name"], line["schema"]["version"]) for line in map(json.loads, printed)} == {
        ("llmexp.plan", 3)
    }


@pytest.fixture
def llmexp_main(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    from llmexp.__main__ import main

    def run(*words: str) -> str:
        assert main(words) == 0
        return capsys.readouterr().out

    return run


def test_options_from_a_folder_of_ones_own_are_planned(here: Path) -> None:
    (here / "mine" / "model").mkdir(parents=True)
    (here / "mine" / "model" / "small.yaml").write_text("defaults: [tiny]\nname: small\nnum_layers: 2\n")
    (small,) = llmexp.plan("model=small", config_dir=here / "mine")
    assert small.plan.config.model.num_layers == 2


@pytest.mark.parametrize("function", [llmexp.plan, llmexp.advise, llmexp.run])
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("model=7bb",), "unknown model '7bb': did you mean 7b? choices are "),
        (("modl=7b",), "unknown key 'modl': did you mean model? "),
        (("--json",), "'--json' is neither key=value nor a command: "),
        (("method=R\n+Z3+K",), "cannot read 'method=R; +Z3+K': "),
        ((7,), "7 is not a string: write each word as one, such as 'model=7b'"),
    ],
)
def test_wrong_words_raise_one_line_and_print_nothing(
    function: Callable[..., object], words: tuple[str, ...], said: str, capfd: pytest.CaptureFixture[str], here: Path
) -> None:
    with pytest.raises(ConfigError) as told:
        function(*words)
    assert said in str(told.value)
    assert "\n" not in str(told.value)
    assert capfd.readouterr() == ("", "")
    assert list(here.iterdir()) == []


def test_a_run_without_words_is_refused() -> None:
    with pytest.raises(ConfigError, match="no run given"):
        llmexp.run()


def test_notices_are_logged_and_handlers_of_the_program_stay(caplog: pytest.LogCaptureFixture, here: Path) -> None:
    (here / "outputs").write_text("a file")
    with caplog.at_level(logging.INFO, "llmexp"), pytest.raises(ConfigError, match="is a file; name a folder"):
        llmexp.run("model=tiny", "hardware=cpu", "tracking=none")
    with caplog.at_level(logging.INFO, "llmexp"):
        llmexp.plan("model=tiny", "model=7b", "hardware=a800")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "model=tiny is replaced by model=7b, which comes later")
    ]


def test_the_page_s_example_runs(runner: object, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = Path(__file__).parents[2] / "docs" / "records.md"
    blocks = re.findall(r"(?:^ {4}.*\n|^\n)+", page.read_text(), re.MULTILINE)
    (example,) = (block for block in blocks if "llmexp.run(" in block)
    exec(dedent(example), {})
    planned, *ran = capsys.readouterr().out.splitlines()[1:]
    assert re.fullmatch(r"7b R\+Z3 yes 592\.35 \d+\.\d+", planned)
    assert [line.split()[1] for line in ran] == ["success"] * 6


@pytest.mark.ranks
def test_run_measures_twice_in_a_process_without_a_terminal_and_prints_nothing(tmp_path: Path) -> None:
    program = """
        import logging, sys
        mine = logging.FileHandler("mine.log")
        logging.basicConfig(level=logging.INFO, handlers=[mine])
        first = llmexp.run("method=Naive", *SMALL)
        again = llmexp.run("method=Naive", "seed=0,1", *SMALL)
        assert logging.getLogger().handlers == [mine]
        assert "torch" not in sys.modules
        for run in (*first, *again):
            print(run.plan.config.seed, run.result.status, run.is_answered, run.rate.mean > 0, run.folder)
        print(again[0].result == first[0].result)
        print(len(llmexp.load("outputs")))
    """
    process = started(program, tmp_path)
    out, err = process.communicate(timeout=HANG_S)
    assert (process.returncode, err) == (0, "")
    folders = {
        json.loads(run.plan_path.read_text())["config"]["seed"]: run.path.relative_to(tmp_path)
        for run in find_runs(tmp_path / "outputs")
    }
    assert out.splitlines() == [
        *(f"{seed} success True True {folders[seed]}" for seed in (0, 0, 1)),
        "True",
        "2",
    ]
    logged = (tmp_path / "mine.log").read_text()
    assert "INFO:llmexp:2 runs of outputs/main | " in logged
    assert ": success already, " in logged
    assert (tmp_path / "outputs" / "main" / "report.csv").exists()


@pytest.mark.ranks
def test_ctrl_c_ends_the_run_writes_its_result_and_reaches_the_program(tmp_path: Path) -> None:
    program = """
        try:
            llmexp.run("method=Naive", *SMALL, "measure.steps=100000")
        except KeyboardInterrupt:
            print("the program goes on")
    """
    process = started(program, tmp_path)
    until(lambda: list((tmp_path / "outputs").glob("main/*/repeat.0/samples.0.jsonl")))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=HANG_S)
    assert (process.returncode, out, err) == (0, "the program goes on\n", "")
    (run,) = find_runs(tmp_path / "outputs")
    result = run.result()
    assert result is not None
    assert (result.status, result.reason) == ("killed", "interrupted by the user")


def test_a_run_whose_folder_cannot_be_written_has_no_result(monkeypatch: pytest.MonkeyPatch, here: Path) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("llmexp.launch.run.run_one", full)
    (run,) = llmexp.run("method=Naive", "model=tiny", "hardware=cpu", "tracking=none")
    assert (run.result, run.is_answered, run.rate) == (None, False, None)
