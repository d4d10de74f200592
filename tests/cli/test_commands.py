from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from llmexp.record.folder import find_runs
from llmexp.record.mlflow import SyncSummary
from llmexp.record.result import RunStatus

QUIET = ("tracking=none", "model=tiny", "hardware=cpu")


@pytest.fixture
def runs(llmexp, runner, here: Path) -> list[Path]:
    runner.endings = {"R": RunStatus.OOM}
    llmexp("method=Naive,R", *QUIET)
    return [run.path for run in find_runs(here / "outputs")]


def test_plan_says_that_an_adaptive_protocol_may_take_fewer_steps(llmexp):
    assert (
        "30 to warm up + 100 measured, 10 times in fresh processes; fewer of both once tokens/s is known to 0.01"
        in llmexp("plan", "--verbose", "measure=adaptive")[1]
    )
    assert "fewer" not in llmexp("plan", "--verbose", "measure=paper")[1]


def test_plan_says_what_would_run(llmexp, here: Path):
    code, out, _ = llmexp(
        "plan",
        "--verbose",
        "method=F+Z3+O",
        "model=13b",
        "hardware=rtx4090",
        "precision=bf16_pure",
        "batch.accumulation=2",
    )
    assert code == 0
    for expected in [
        "13b F+Z3+O on rtx4090",
        "offload_optimizer=True, offload_parameters=True",
        "dp 8 x tp 1 x pp 1 x cp 1 = 8 ranks",
        "dp 8 x micro 1 x accumulation 2 = 16 samples a step; x seq_len 256 = 4,096 positions",
        "13,015,864,320",
        "0 GiB on the device of 23.99",
        '"stage": 3',
        "-m llmexp.launch.ranks 8 ",
        "python -m llmexp method=F+Z3+O model=13b hardware=rtx4090 precision=bf16_pure batch.accumulation=2",
    ]:
        assert expected in out
    assert list(here.iterdir()) == []


def test_plan_says_that_it_cannot_fit(llmexp):
    _, out, _ = llmexp("plan", "--verbose", "model=7b", "hardware=rtx4090")
    assert "it cannot fit" in out
    assert "24.0 GiB" in out


def test_plan_says_why_an_engine_skips(llmexp):
    _, out, _ = llmexp("plan", "hardware=a800", "parallelism.tp=2")
    assert "skipped    engine=deepspeed runs data and context parallelism only, not tp=2" in out


def test_plan_of_a_model_that_only_building_can_count(llmexp):
    words = ("plan", "model=hf", "model.path=someone/some-model")
    code, out, _ = llmexp(*words)
    assert code == 0
    assert out.startswith("some-model Naive on")
    said = "not known before the model is built: model.path=someone/some-model is not here, and llmexp reads the config"
    assert out.splitlines()[1].startswith(f"  memory     {said}")
    assert llmexp(*words, "--verbose")[1].count("not known before the model is built") == 2


def test_plan_as_json_is_one_plan_a_line(llmexp):
    _, out, _ = llmexp("plan", "experiment=first_run", "--json")
    assert [json.loads(line)["plan"]["method"] for line in out.splitlines()] == [
        "Naive",
        "F",
        "R",
        "Z2",
        "Z3+O",
        "F+R+Z3",
    ]


def test_plan_needs_no_torch_and_nothing_slow():
    code = "import sys; from llmexp.__main__ import main; main(['plan', 'method=F']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = set(done.stdout.splitlines()[-1].split())
    assert modules.isdisjoint({"torch", "deepspeed", "transformers", "mlflow", "matplotlib", "pandas", "rich"})


def test_status_names_every_state(runs, llmexp, write_samples):
    write_samples(runs[0] / "repeat.0", 0, [(1.0, 1.0)] * 3, warmup=range(1))
    with (runs[0] / "repeat.0" / "samples.0.jsonl").open("a") as file:
        file.write('{"index": 3, "cut')
    (runs[1] / "result.json").write_text("{")
    (runs[0] / "result.json").unlink()
    code, out, _ = llmexp("status")
    lines = out.splitlines()
    assert code == 0
    assert lines[1].split()[1:4] == ["planned", "0/1", "2/20"]
    assert "unreadable" in lines[2]


@pytest.mark.parametrize("form", ["terminal", "markdown", "csv"])
def test_report_at_any_time(form, runs, llmexp, here: Path):
    code, out, _ = llmexp("report", "--format", form, "--figure", "table.png")
    assert code == 0
    assert "Naive" in out
    assert (here / "table.png").stat().st_size > 0


def test_report_of_the_runs_named(runs, llmexp):
    _, out, _ = llmexp("report", str(runs[0]), str(runs[0]), "--format", "csv")
    assert out.count("\n") == 2


def test_compare_two_runs(runs, llmexp):
    code, out, _ = llmexp("compare", *map(str, runs))
    assert code == 0
    assert "Naive" in out


def test_sync_goes_where_each_run_was_planned_to_go_and_says_what_it_could_not_read(runs, llmexp, monkeypatch):
    given = []

    def note(folders, tracking):
        given.append((len(folders), tracking.name, tracking.uri, tracking.experiment))
        return SyncSummary(written=len(folders), unreadable=["one is broken"])

    left = []
    monkeypatch.setattr("llmexp.record.mlflow.sync", note)
    monkeypatch.setattr("llmexp.sweep.report.leave_report", lambda sweep, tracking: left.append((sweep, tracking.uri)))
    assert llmexp("sync")[:2] == (1, "2 recorded, 0 unchanged, 1 unreadable\none is broken\n")
    llmexp("sync", "--uri", "sqlite:///other.db", "--experiment", "mine")
    assert given == [(2, "mlflow", None, "llmexp"), (2, "mlflow", "sqlite:///other.db", "mine")]
    sweep = Path("outputs/main")
    assert left == [(sweep, None), (sweep, "sqlite:///other.db")]


def test_ui_serves_the_store(llmexp, monkeypatch):
    Path("there").mkdir()
    monkeypatch.setattr(
        "llmexp.cli.commands.ui.serve_ui", lambda tracking, port, outputs: port if outputs == Path("there") else -1
    )
    assert llmexp("ui", "--port", "7", "--outputs", "there")[0] == 7


@pytest.mark.parametrize("command", ["sync", "ui"])
def test_no_command_opens_a_sqlite_store_on_a_network(llmexp, runner, here: Path, mounted, command):
    llmexp("method=Naive", "hardware=cpu", "tracking=none")
    mounted("lustre")
    code, _, err = llmexp(command)
    assert code == 2
    assert "is on lustre" in err
    assert "llmexp sync later" in err
    assert not (here / "outputs" / "mlflow.db").exists()


@pytest.mark.parametrize(
    "line",
    ["--config-dir mine plan model=mine", "-m plan --config-dir mine model=mine", "model=mine plan --config-dir=mine"],
)
def test_a_command_is_found_behind_flags_and_their_values(line, llmexp, here: Path):
    (here / "mine" / "model").mkdir(parents=True)
    shape = (
        "vocab_size: 64\nhidden_size: 16\nintermediate_size: 32\nnum_layers: 1\nnum_heads: 2\nnum_kv_heads: "
        "2\nmax_positions: 512\n"
    )
    (here / "mine" / "model" / "mine.yaml").write_text(f"name: mine\narchitecture: llama\n{shape}")
    code, out, err = llmexp(*line.split())
    assert (code, err) == (0, "")
    assert out.startswith("mine Naive on cpu: ")
