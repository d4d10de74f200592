from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from made_up_tokens import TOKENS

from llmexp.launch.detect import Detected

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
    "seq_len=3": ["write data.seq_len;"],
    "model=7c": ["unknown model '7c'", "did you mean 7b?", "tiny"],
    "hardware=rtx4060": ["did you mean rtx4090?"],
    "experiment=paper": ["paper_table03"],
    "hydra/launcher=slrm": ["hydra/launcher", "basic"],
    "measure.steps=0": ["measure.steps=0: must be a whole number of at least 1"],
    "measure.steps=many": ["measure.steps=many: must be a whole number of at least 1"],
    "batch.micro=glob(*)": ["batch.micro=glob(*): glob chooses from the options of a group", "batch.micro is no group"],
    "model=glob(zz*)": ["model=glob(zz*): no option matches: choices are 125m, 13b"],
    "batch.micro=1.5": ["batch.micro=1.5: must be a whole number of at least 1"],
    "parallelism.tp=3": ["tp 3", "does not divide the 2 devices"],
    "hardware=a800 parallelism.cp=8 data.seq_len=350": [
        "parallelism.cp=8 cuts data.seq_len=350",
        "data.seq_len=344 or data.seq_len=352",
    ],
    "model=tiny model.num_experts=8": ["model.num_experts=8 belongs to architecture mixtral", "model=tiny is llama"],
    "model=tiny-moe model.experts_per_token=5": ["model.experts_per_token=5 is more than model.num_experts=4"],
    "model=tiny parallelism.ep=2": ["parallelism.ep=2", "model=tiny has none", "model=mixtral"],
    "engine=torch engine.launcher=python": [
        "engine.launcher=python does not start engine=torch: choices are spawn, torchrun"
    ],
    "engine=megatron engine.launcher=deepspeed": [
        "engine.launcher=deepspeed does not start engine=megatron: choices are spawn, torchrun"
    ],
    "engine=script engine.launcher=deepspeed": [
        "engine.launcher=deepspeed does not start engine=script: choices are spawn, torchrun, python"
    ],
    "engine=script engine.launcher=python parallelism.dp=2": [
        "dp 2 x tp 1 x pp 1 x cp 1 = 2 ranks",
        "engine.launcher=spawn",
    ],
    "engine=script engine.launcher=python parallelism.tp=2": [
        "dp 1 x tp 2 x pp 1 x cp 1 = 2 ranks",
        "engine.launcher=spawn",
    ],
    "engine=script engine.launcher=python hardware.nodes=2": ["starts one process", "hardware.nodes=2"],
    "model=hf": ["model.path"],
    "data=hf": ["data.path is missing"],
    "data=synthetic data.field=a": [
        "data.field=a belongs to data=hf, and data=synthetic draws its tokens and reads nothing: add data=hf, "
        "or leave it out"
    ],
    "data=instructions data.files=[none.jsonl]": ["data.files: nothing matches none.jsonl"],
    "data=instructions measure.tokens=9999": ["measure.tokens=9999", "data=instructions pads"],
    "data.seq_len_schedule=[64,128]": ["data.seq_len_schedule=[64, 128]", "end at data.seq_len=256"],
    "~tracking": ["tracking is missing"],
    "sweep.name=../up": ["sweep.name"],
    "method=Naive,Z2+Z3,F": ["run method=Z2+Z3:", "exclude"],
    "experiment=paper_table03 measure.stepz=1": ["measure.stepz"],
    "sweep.name=a,b": ["sweep.name", "apply to a whole sweep"],
    "seed=interval(0,1)": ["sweep"],
    "foo=(": ["cannot read 'foo=('"],
    "repot": ["did you mean report?"],
    "--cgf": ["--cgf"],
}

# The same, for rows that take the same roads through the modes as those above.
WRONG_WORDS = {
    # methods
    "method=F++R": ["method 'F++R'", "did you mean F+R?"],
    "method=L": ["L does not belong to task=pretrain", "method=L task=finetune"],
    "method=fsdp": ["unknown atom 'fsdp'", "write Z3, with engine=torch"],
    "method=LoRA": ["write L, with task=finetune"],
    "method=QLoRA": ["write QL, with task=finetune"],
    "method=R+zero-3": ["unknown atom 'zero-3'", "write Z3;"],
    "method=flash": ["write F;"],
    "method=3": ["unknown atom '3'", "did you mean Z3?"],
    "method=[F,R]": ["method=F,R"],
    # groups
    "hardware=4090": ["unknown hardware '4090'", "did you mean rtx4090?"],
    "model=7": ["unknown model '7'", "did you mean 7b?"],
    "precision=32": ["unknown precision '32'", "did you mean fp32?"],
    "model=7,13": ["unknown model '7'"],
    "model=null": ["unknown model 'null'"],
    "model=": ["unknown model ''", "tiny"],
    "model=[7b,13b]": ["model=7b,13b"],
    "model=qwen": ["did you mean qwen3-8b?"],
    "model=llama-2-7b": ["write model=7b;"],
    "precision=half": ["write precision=fp16;"],
    "precision=bf16": ["write precision=bf16_mixed"],
    "engine=fsdp": ["write engine=torch;"],
    "engine=vllm": ["engine=vllm belongs to task=serve: add that", "deepspeed, megatron, script, torch"],
    "engine.name=knobs": ["unknown engine 'knobs'", "deepspeed, megatron, script, torch"],
    "engine.name=limits": ["unknown engine 'limits'"],
    "hardware=gpu": ["no GPU is visible here", "hardware=cpu", "a800, b200, b300"],
    "tracking=wandb": ["write tracking.also=wandb; "],
    # keys
    "lora_r=8": ["write adapter.rank;"],
    "batch_size=4": ["write batch.micro;"],
    "optimizer.learning_rate=1e-4": ["write optimizer.lr;"],
    "max_seq_len=128": ["write data.seq_len;"],
    "gpus=8": ["write hardware.devices_per_node=<cards>, of the machine, or parallelism.dp=<ranks>, of a run;"],
    "fp16=true": ["write precision=fp16;"],
    "hydra.swep.dir=x": ["'hydra.swep.dir'", "did you mean sweep?"],
    "hydra.launcher.partition=x": ["hydra.launcher.partition", "hydra/launcher=slurm"],
    "hydra/launcher=slurm hydra.launcher.partitoin=x": ["did you mean partition?"],
    "hydra/launcher=slurm hydra.launcher.time=bogus": ["hydra.launcher.time=bogus", "2:30:00"],
    # words without '=', and with dashes
    "tiny": ["did you mean model=tiny?"],
    "F+R": ["did you mean method=F+R?"],
    "bf16": ["write precision=bf16_mixed"],
    "model 7b": ["write model=<value>"],
    "model:7b": ["write model=7b;"],
    "train": ["write llmexp method=Naive,F model=tiny"],
    "ls": ["write status;"],
    "--model=7b": ["write model=7b;"],
    "--batch-size 4": ["write batch.micro;"],
    # kinds of values
    "data.files=a.txt": ["write data.files=[a.txt]"],
    "batch=4": ["did you mean batch.micro=4?"],
    "batch.micro=[1,2]": ["batch.micro=1,2"],
    "data.pack=yes": ["data.pack=yes: must be true or false"],
    "rerun=yes": ["must be one of none, failed, stale, all"],
    "sweep.name=2024": ["write 'sweep.name=\"2024\"'"],
    "hardware.memory_bytes=16GB": ["must be a whole number", "16e9"],
    "data.seq_len=${nope}": ["data.seq_len", "'nope' not found"],
    "model=7b,": ["cannot read 'model=7b,'", "quotes around special characters"],
    # data, models and trackers
    "data.path=a.txt": [
        "data.path=a.txt belongs to data=hf or data=instructions, and data=text reads data.files: "
        "write data.files=[a.txt], or leave it out"
    ],
    "data=synthetic data.path=a": [
        "data.path=a belongs to data=hf or data=instructions, and data=synthetic draws its tokens",
        "add one of those",
    ],
    "data=synthetic data.files=[a]": [
        "data.files=[a] belongs to data=text or data=instructions, and data=synthetic draws its tokens "
        "and reads nothing"
    ],
    "data=hf data.path=a data.files=[b]": [
        "belongs to data=text or data=instructions, and data=hf reads data.path: write data.path=<dataset>"
    ],
    "data.split=test": ["data.split=test belongs to data=hf or data=instructions, and data=text reads data.files"],
    "data.field=story": [
        "data.field=story belongs to data=hf, and data=text reads data.files: add data=hf, or leave it out"
    ],
    "data=synthetic data.pack=false": [
        "data.pack=false belongs to data=text, data=hf or data=instructions, and data=synthetic draws its tokens"
    ],
    "data=synthetic,text data.tokenizer=./mine": [
        "run data=synthetic: data.tokenizer=./mine belongs to data=text, data=hf or data=instructions"
    ],
    "model=tiny model.path=./mine": [
        "model.path=./mine belongs to model=hf, and model=tiny is llama: set model=<folder or hub name>"
    ],
    "model=hf model.path=org/a model.num_layers=2": [
        "architecture qwen3 or architecture mixtral, and model=a has its shape from model.path"
    ],
    "optimizer.factored=true": [
        "optimizer.factored=true belongs to optimizers with optimizer.target, and optimizer=adamw",
        "such as optimizer=sgd",
    ],
    "optimizer=sgd optimizer.eps=1e-8": [
        "belongs to AdamW, and optimizer.target=torch.optim.SGD is another class: put it into optimizer.options"
    ],
    "optimizer=sgd optimizer.implementation=deepspeed": ["belongs to AdamW", "take optimizer=adamw, or leave it out"],
    "runtime.python=/x": ["runtime=here is llmexp's own interpreter: write runtime=venv runtime.python=/x"],
    "runtime=venv runtime.python=/x runtime.image=a.sif": [
        "runtime.image=a.sif belongs to runtime=apptainer or runtime=docker",
        "add one of those",
    ],
    "data=hf data.path=./nowhere": ["data.path=./nowhere: no such file or folder"],
    "data.tokenizer=/nowhere/there": ["data.tokenizer=/nowhere/there: no such file or folder"],
    "model=./nowhere": ["model.path=./nowhere: no such folder"],
    "model=a/b/c": ["a/b/c", "organization/model"],
    "tracking.uri=ftp://nowhere": [
        "tracking.uri=ftp://nowhere",
        "sqlite:///",
        "http://",
        "postgresql://",
        "databricks",
    ],
    "tracking.uri=localhost:5000": ["did you mean http://localhost:5000?"],
    "++runtime.environment.HF_TOKEN=abc": ["runtime.environment.HF_TOKEN would be recorded", "export HF_TOKEN"],
    "data.path=https://me:hunter2@host/set data=hf": ["data.path holds a URL with a login"],
    f"model.name={TOKENS['Hugging Face']}": ["model.name holds a token (Hugging Face)"],
    f"++engine.options.upload.api_key={'0123abcd' * 5}": ["engine.options.upload.api_key holds a token or a password"],
    f"++engine.options.uploads=[{{to:{TOKENS['GitHub']}}}]": ["engine.options.uploads holds a token (GitHub)"],
    f"hydra/launcher=slurm ++hydra.launcher.options.comment={TOKENS['Databricks']}": [
        "hydra.launcher.options.comment holds a token (Databricks)"
    ],
    "task=finetune method=Q+L+F": ["LoRA over 4-bit weights is one atom, QL: write method=QL+F task=finetune"],
    "task=serving": ["write task=serve;"],
    "task=serve data=./x.jsonl": ["task=serve reads prompts from serve.texts.path=<file>"],
    "task=serve serve.dataset=x.jsonl": ["write serve.texts.path=<file of prompts>;"],
    "serve": ["write llmexp task=serve model=tiny, without a word for it;"],
    "measure.steps=99999999999999999999999999": ["of at least 1 and of at most 1000000000"],
    "seed=18446744073709551616": ["of at least 0 and of at most 4294967295"],
    "optimizer.lr=inf": ["optimizer.lr=inf: must be"],
    "optimizer.lr=nan": ["optimizer.lr=nan: must be"],
    "task=serve serve.rate=inf": ["serve.rate"],
    "task=serve serve.requests=1000000000000": ["of at least 1 and of at most 10000000"],
    f"sweep.name={'a' * 300}": ["a folder's name of at most 200 letters"],
    "tracking.uri=./mlruns": ["did you mean sqlite:///./mlruns/mlflow.db?"],
    "tracking.uri=sqlite://a.db": ["did you mean sqlite:///a.db?"],
    "tracking.uri=postgres://host/db": ["did you mean postgresql://?"],
    "tracking.uri=http://": ["names no host"],
    "tracking.uri=http://host:99999": ["Port out of range"],
}


@pytest.fixture(autouse=True)
def _two_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmexp.cli.resolvers.detect", lambda: Detected("cpu", "cpu", "", 2, None))


def check_refused(answer: tuple[int, str, str], expected: Sequence[str]) -> None:
    code, out, err = answer
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("llmexp: ")
    for each in expected:
        assert each in err


@pytest.mark.parametrize("mode", [(), ("--cfg", "job"), ("plan",)], ids=["run", "cfg", "plan"])
@pytest.mark.parametrize("words", WRONG)
def test_wrong_input_is_one_line_and_starts_nothing(words, mode, llmexp, runner, here: Path):
    check_refused(llmexp(*mode, *words.split()), WRONG[words])
    assert runner.ran == []
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("words", WRONG_WORDS)
def test_words_of_other_programs_and_wrong_values_are_one_line_and_start_nothing(words, llmexp, runner, here: Path):
    check_refused(llmexp(*words.split()), WRONG_WORDS[words])
    assert runner.ran == []
    assert list(here.iterdir()) == []


def test_a_tracker_of_the_environment_that_mlflow_cannot_use_is_one_line_and_starts_nothing(
    llmexp, runner, here: Path, monkeypatch
):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "ftp://nowhere")
    check_refused(llmexp("method=Naive"), ["MLFLOW_TRACKING_URI=ftp://nowhere", "sqlite:///"])
    assert runner.ran == []
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name: x\n  bad: [1\n", ["mine/model/own.yaml:2: not YAML: mapping values are not allowed here"]),
        ("name: a\nname: b\n", ["mine/model/own.yaml:2: not YAML: found duplicate key name"]),
        ("defaults: tiny\n", ["model/own", "defaults must be a list"]),
        ("defaults: [tiny]\nname: ${nope.x}\n", ["model.name", "'nope.x' not found"]),
        ("- a\n- b\n", ["model=[a,b]: must be a section with name"]),
        ("name: \udcff\n", ["utf-8"]),
    ],
)
def test_a_broken_file_of_ones_own_is_one_line(text, expected, llmexp, here: Path):
    (here / "mine" / "model").mkdir(parents=True)
    (here / "mine" / "model" / "own.yaml").write_text(text, errors="surrogateescape")
    check_refused(llmexp("plan", "model=own", "--config-dir", "mine"), expected)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("model=my_model", "write model=./my_model"),
        ("model=hf model.path=my_model/config.json", "is a file: name the folder that holds it, model.path=my_model"),
        ("model=./corpus.txt", "model.path=./corpus.txt is a file"),
        ("sweep.outputs=corpus.txt", "corpus.txt is a file; name a folder"),
        ("data=corpus.txt", "write data=text data.files=[corpus.txt]"),
        ("data=my_model", "write data=text data.files=[my_model], or data=instructions data.files=[my_model]"),
    ],
)
def test_a_place_that_is_typed_another_way_is_told_how(words, expected, llmexp, runner, here: Path):
    (here / "my_model").mkdir()
    (here / "my_model" / "config.json").write_text("{}")
    (here / "corpus.txt").write_text("text")
    check_refused(llmexp(*words.split()), [expected])


def test_outputs_that_cannot_be_written_to_are_said_before_anything_starts(
    llmexp, here: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("os.access", lambda path, mode: False)  # root may write wherever the filesystem lets anybody
    expected = [f"sweep.outputs=mine: {here} cannot be written to; name another folder"]
    check_refused(llmexp("model=tiny", "hardware=cpu", "sweep.outputs=mine"), expected)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["report", "nowhere"], "nowhere does not exist"),
        (["status"], "outputs does not exist"),
        (["report", "--format", "html", "."], "'terminal', 'markdown', 'csv'"),
        (["compare", "."], "1 path without --to"),
        (["compare", ".", ".", "--margin", "much"], "--margin is 'much': write a share between 0 and 1"),
        (["compare", ".", "--baseline", "a", "--to", "b"], "leave --to out"),
        (["sync", "."], "no runs in ."),
        (["ui", "--port", "high"], "--port: high is not a port: write a whole number from 1 to 65535"),
        (["ui", "--port", "80000"], "--port: 80000 is not a port: write a whole number from 1 to 65535"),
        (["ui", "--outputs", "nowhere"], "no folder nowhere: set --outputs"),
        (["ui"], "no folder outputs: set --outputs"),
        (["ui", "--uri", "ftp://nowhere"], "--uri=ftp://nowhere"),
        (["sync", "--uri", "localhost:5000"], "did you mean http://localhost:5000?"),
        (["plan", "--jso"], "--jso"),
        (["--cfg", "jobs"], "'job', 'hydra', 'all'"),
        (["--info", "model=7b"], "'defaults-tree', 'plugins', 'searchpath'"),
        (["--package", "model"], "--package goes with --cfg: add --cfg job"),
        (["--resolve", "model=7b"], "--resolve goes with --cfg"),
        (["--config-dir", "nowhere"], "--config-dir nowhere"),
        (["--cfg", "job", "--package", "modle"], "did you mean model?"),
    ],
)
def test_wrong_words_of_commands_are_one_line_and_leave_nothing(words, expected, llmexp, here: Path):
    check_refused(llmexp(*words), [expected])
    assert list(here.iterdir()) == []


def test_a_broken_record_is_one_line_with_its_place_and_nothing_starts(llmexp, tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text('{"instruction": "Add.", "output": "3"}\n{"instruction": "Add.", "output": ""}\n')
    code, out, err = llmexp("task=finetune", f"data.files=[{path}]", "method=L,QL")
    assert (code, out) == (2, "")
    assert err == f"llmexp: run method=L: data.files: {path}:2: output is empty: expected a text\n"
