"""Programs of one process are started as Python starts them, without what tells a rank of several.

nanoGPT's train.py has these habits.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from planning import make_plan

from llmexp.cli.show import plan_text
from llmexp.launch.run import run_one
from llmexp.launchers.rank.frame import Rank
from llmexp.launchers.script.worker import exit_reason, hide_other_gpus
from llmexp.record.result import RunResult, RunStatus
from llmexp.record.samples import StepSample, read_samples
from llmexp.registry import get_engine
from llmexp.sweep.cost import Cost
from llmexp.sweep.measuring import folder_of

MICRO, SEQ_LEN, STEPS = 2, 16, 3
NANOGPT = """
import os, sys, time, torch
from torch import distributed, nn

device, log_interval = "cuda", 10
for name, _, value in (word.removeprefix("--").partition("=") for word in sys.argv[1:]):
    globals()[name] = type(globals()[name])(value)
print("told", sorted({{"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}} & os.environ.keys()))
if int(os.environ.get("RANK", -1)) != -1:
    distributed.init_process_group(backend="nccl")
    device = f"cuda:{{os.environ['LOCAL_RANK']}}"
    torch.cuda.set_device(device)
model = nn.Sequential(nn.Embedding(64, 32), nn.Linear(32, 64)).to(device)
optimizer = torch.optim.AdamW(model.parameters())
print("step 0: train loss 4.2874, val loss 4.2823")
for iter_num in range(50):
    start_s = time.time()
    ids = torch.randint(64, ({micro}, {seq_len}), device=device)
    loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if iter_num % log_interval == 0:
        took_ms = (time.time() - start_s) * 1000
        print(f"iter {{iter_num}}: loss {{loss.item():.4f}}, time {{took_ms:.2f}}ms, mfu -100.00%")
    {report}
"""
TRAINER = """
import tempfile, torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

sizes = {{"vocab_size": 64, "hidden_size": 16, "intermediate_size": 32}}
sizes |= {{"num_hidden_layers": 1, "num_attention_heads": 2}}
data = [{{"input_ids": ids, "labels": ids}} for ids in torch.randint(64, (64, {seq_len}))]
options = {{"max_steps": 20, "logging_steps": 1, "save_strategy": "no", "report_to": [], "use_cpu": True}}
arguments = TrainingArguments(tempfile.mkdtemp(), per_device_train_batch_size={micro}, **options)
Trainer(LlamaForCausalLM(LlamaConfig(**sizes)), arguments, train_dataset=data).train()
"""
HOOK = "from llmexp import hook; hook.step(tokens=ids.numel(), loss=loss)"

Run = Callable[..., tuple[RunResult, Path]]


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    (tmp_path / "train.py").touch()
    return [
        *(
            "engine=script",
            "engine.launcher=python",
            "model=tiny",
            "hardware=cpu",
            f"batch.micro={MICRO}",
            f"data.seq_len={SEQ_LEN}",
        ),
        *("measure=smoke", f"measure.steps={STEPS}", "measure.threads_per_rank=1", f"sweep.outputs={tmp_path}"),
        f"engine.options.command='{tmp_path / 'train.py'} --device=cpu --log_interval=1'",
    ]


@pytest.fixture
def run(tmp_path: Path, words: list[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a program where the driver itself has the variables of a rank; return the result and the repeat's folder."""
    for name, value in {
        "RANK": "1",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "elsewhere",
        "MASTER_PORT": "1",
    }.items():
        monkeypatch.setenv(name, value)

    def start(*more: str, text: str = NANOGPT, report: str = "pass") -> tuple[RunResult, Path]:
        (tmp_path / "train.py").write_text(text.format(micro=MICRO, seq_len=SEQ_LEN, report=report))
        plan = make_plan(*words, *more)
        result = run_one(plan, folder := folder_of(plan))
        assert result is not None
        return result, folder.path / "repeat.0"

    return start


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("preset", "program", "told_by"),
    [
        ("nanogpt", {}, "output of rank 0"),
        ("null", {"report": HOOK}, "hook"),
        pytest.param("trainer", {"text": TRAINER}, "callback", marks=pytest.mark.sweep),
    ],
)
def test_one_process_that_no_launcher_started_is_measured(run: Run, preset: str, program: dict[str, str], told_by: str):
    result, repeat = run(f"engine.options.preset={preset}", **program)
    assert result.status is RunStatus.SUCCESS, result.reason
    assert (result.processes, result.what_ran["steps_told_by"], result.what_ran["backend"]) == (1, told_by, None)
    assert [path.name for path in repeat.glob("samples.*")] == ["samples.0.jsonl"]
    samples = read_samples(repeat / "samples.0.jsonl", StepSample)
    assert [sample.positions for sample in samples] == [MICRO * SEQ_LEN] * (1 + STEPS)
    said = (repeat / "log.0.txt").read_text()
    if program.get("text") != TRAINER:
        assert "told []" in said, "the program sees variables of a rank"
        printed = [float(line.split()[3].rstrip(",")) for line in said.splitlines() if line.startswith("iter ")]
        assert [sample.loss for sample in samples] == pytest.approx(printed[: len(samples)], abs=1e-4)


@pytest.mark.ranks
def test_a_program_that_took_gpus_because_of_a_ranks_variables_is_told_of_the_other_way(run: Run):
    result, _ = run("engine.launcher=spawn", "parallelism.dp=1", "engine.options.preset=nanogpt")
    assert result.status is RunStatus.FAILED
    assert "NCCL" in result.reason
    assert result.reason.endswith(
        "many programs use GPUs when RANK is set: engine.launcher=python starts one process without it"
    )


@pytest.mark.parametrize(
    ("launcher", "hardware", "error", "advice"),
    [
        (
            "spawn",
            "cpu",
            "RuntimeError: Distributed package doesn't have NCCL built in",
            "engine.launcher=python starts one process",
        ),
        (
            "spawn",
            "cpu",
            "ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
            "engine.launcher=python starts",
        ),
        (
            "spawn",
            "cpu",
            "AttributeError: module 'torch._C' has no attribute '_cuda_setDevice'",
            "engine.launcher=python starts",
        ),
        ("python", "cpu", "AssertionError: Torch not compiled with CUDA enabled", "hardware=cpu hides the GPUs"),
        ("spawn", "cpu", "ValueError: a mistake of mine", None),
        ("spawn", "a800", "RuntimeError: CUDA error: invalid device ordinal", None),
    ],
)
def test_advice_is_for_cpus_and_errors_of_gpus(
    words: list[str], launcher: str, hardware: str, error: str, advice: str | None
):
    config = make_plan(*words, f"engine.launcher={launcher}", f"hardware={hardware}").config
    said = get_engine("pretrain", "script").advice(config, f"rank 0: {error}")
    assert advice in said if advice else said == ""


def test_the_plan_is_of_one_rank_and_shows_why(words: list[str]):
    alone, several = make_plan(*words), make_plan(*words, "engine.launcher=spawn", "parallelism.dp=1")
    assert (alone.dims.world_size, alone.batch.global_) == (1, MICRO)
    assert alone.command.argv[1:] == ["-m", "llmexp.launchers.script.worker", "{folder}"]
    assert (
        "dp 1 x tp 1 x pp 1 x cp 1 = 1 rank (2 devices a node, of which engine.launcher=python takes one)"
        in plan_text(Cost(alone, None, "unknown"), verbose=True)
    )
    assert alone.id != several.id, "the program sees other variables, and may do other things"


@pytest.mark.parametrize(("given", "left"), [("2,3", "2"), ("GPU-1f,GPU-2e", "GPU-1f"), ("", ""), (None, "0")])
def test_one_gpu_is_left_to_a_process_that_would_take_all(
    monkeypatch: pytest.MonkeyPatch, given: str | None, left: str
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given or "")
    if given is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    hide_other_gpus()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == left


@pytest.mark.parametrize(
    ("code", "printed", "reason"),
    [
        ("no data in\n data/", "", "exit code 1: no data in data/"),
        (
            2,
            "usage: train.py\ntrain.py: error: unrecognized arguments: --foo\n",
            "exit code 2; its last line: train.py: error: unrecognized",
        ),
        (
            2,
            "╭─ Parsing error ─╮\n│ Unrecognized: --foo │\n╰───────────╯\n\n",
            "exit code 2; its last line: │ Unrecognized: --foo │",
        ),
        (3, "", "exit code 3"),
    ],
)
def test_a_program_that_exits_is_quoted(tmp_path: Path, code: object, printed: str, reason: str):
    (tmp_path / "log.0.txt").write_text(printed)
    assert exit_reason(Rank(0, 0, 1, tmp_path), code).startswith(f"the program ended with {reason}")
