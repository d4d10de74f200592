from __future__ import annotations

from pathlib import Path

import pytest

from llmexp.plan.detect import Detected

# What people type, and words that the one line must hold: what is wrong, and the valid choice or the nearest name.
WRONG = {
    "tracking.uri=http://me:hunter2@127.0.0.1": ("tracking.uri holds a password", "MLFLOW_TRACKING_PASSWORD"),
    "method=F+X": ["'X'", "F, R, RS, C, Z1, Z2, Z3, O, Q"],
    "method=Z2+Z3": ["Z2 and Z3 exclude each other"],
    "+method=F+O": ["O needs Z2 or Z3"],
    "+methd=F": ["'methd'", "did you mean method?"],
    "modl=7b": ["'modl'", "did you mean model?"],
    "model.parms=3": ["'model.parms'", "num_layers"],
    "+model.parms=3": ["'model.parms'", "num_layers"],
    "++measure.step=3": ["'measure.step'", "did you mean measure.steps?"],
    "seq_len=3": ["did you mean data.seq_len?"],
    "model=7c": ["unknown model '7c'", "did you mean 7b?", "tiny"],
    "hardware=rtx4080": ["did you mean rtx4090?"],
    "experiment=paper": ["paper_table03"],
    "hydra/launcher=slrm": ["hydra/launcher", "basic"],
    "measure.steps=0": ["measure.steps=0", "greater than or equal to 1"],
    "measure.steps=many": ["measure.steps=many", "integer"],
    "batch.micro=1.5": ["batch.micro=1.5", "integer"],
    "parallelism.tp=3": ["tp 3", "does not divide the 2 devices"],
    "hardware=a800 parallelism.cp=8 data.seq_len=350": ["parallelism.cp=8 cuts data.seq_len=350", "data.seq_len=344 or data.seq_len=352"],
    "model=tiny model.num_experts=8": ["model.num_experts=8 is of architecture mixtral", "model=tiny is llama"],
    "model=tiny-moe model.experts_per_token=5": ["model.experts_per_token=5 is more than model.num_experts=4"],
    "model=tiny parallelism.ep=2": ["parallelism.ep=2", "model=tiny has none", "model=mixtral"],
    "engine=torch engine.launcher=python": ["engine.launcher=python does not start engine=torch: choices are torchrun"],
    "engine=megatron engine.launcher=deepspeed": ["engine.launcher=deepspeed does not start engine=megatron: choices are torchrun"],
    "engine=script engine.launcher=deepspeed": ["engine.launcher=deepspeed does not start engine=script: choices are torchrun, python"],
    "engine=script engine.launcher=python parallelism.dp=2": ["dp 2 x tp 1 x pp 1 x cp 1 = 2 ranks", "engine.launcher=torchrun"],
    "engine=script engine.launcher=python parallelism.tp=2": ["dp 1 x tp 2 x pp 1 x cp 1 = 2 ranks", "engine.launcher=torchrun"],
    "engine=script engine.launcher=python hardware.nodes=2": ["starts one process", "hardware.nodes=2"],
    "model=hf": ["model.path"],
    "data=hf": ["data.path is missing"],
    "data=instructions data.files=[none.jsonl]": ["data.files: nothing matches none.jsonl"],
    "data=instructions measure.tokens=9999": ["measure.tokens=9999", "data=instructions pads"],
    "data.seq_len_schedule=[64,128]": ["data.seq_len_schedule=[64, 128]", "end at data.seq_len=256"],
    "~tracking": ["tracking is missing"],
    "sweep.name=../up": ["sweep.name"],
    "method=Naive,Z2+Z3,F": ["run method=Z2+Z3:", "exclude"],
    "experiment=paper_table03 measure.stepz=1": ["measure.stepz"],
    "sweep.name=a,b": ["sweep.name", "of a whole sweep"],
    "seed=interval(0,1)": ["sweep"],
    "foo=(": ["cannot read 'foo=('"],
    "repot": ["did you mean report?"],
    "--cgf": ["--cgf"],
}


@pytest.fixture(autouse=True)
def _two_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmexp.cli.resolvers.detect", lambda: Detected("cpu", "cpu", "", 2, None))


@pytest.mark.parametrize("mode", [(), ("--cfg", "job"), ("plan",)], ids=["run", "cfg", "plan"])
@pytest.mark.parametrize("words", WRONG)
def test_wrong_input_is_one_line_and_starts_nothing(words, mode, llmexp, runner, here: Path):
    code, out, err = llmexp(*mode, *words.split())
    assert code == 2
    assert err.count("\n") == 1
    assert err.startswith("llmexp: ")
    for expected in WRONG[words]:
        assert expected in err
    assert out == ""
    assert runner.ran == []
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["report", "nowhere"], "there is no nowhere"),
        (["status"], "there is no outputs"),
        (["report", "--format", "html", "."], "'terminal', 'markdown', 'csv'"),
        (["compare", "."], "required: b"),
        (["sync", "."], "no runs in ."),
        (["ui", "--port", "high"], "--port"),
        (["plan", "--jso"], "--jso"),
        (["--cfg", "jobs"], "'job', 'hydra', 'all'"),
        (["--config-dir", "nowhere"], "--config-dir nowhere"),
        (["--cfg", "job", "--package", "modle"], "did you mean model?"),
    ],
)
def test_wrong_words_of_commands_are_one_line(words, expected, llmexp):
    code, out, err = llmexp(*words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert expected in err


def test_a_broken_record_is_one_line_with_its_place_and_nothing_starts(llmexp, tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text('{"instruction": "Add.", "output": "3"}\n{"instruction": "Add.", "output": ""}\n')
    code, out, err = llmexp("task=finetune", f"data.files=[{path}]", "method=L,QL")
    assert (code, out) == (2, "")
    assert err == f"llmexp: run method=L: data.files: {path}:2: output is empty: expected a text\n"
