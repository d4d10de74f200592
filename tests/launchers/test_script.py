"""Somebody's own training program on two real ranks: what it reports is what is measured, and what it gets wrong is said."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from planning import make_plan

from llmexp import hook
from llmexp.cli.sweep import folder_of
from llmexp.errors import ConfigError
from llmexp.launch.run import run_one
from llmexp.record.folder import RunFolder
from llmexp.record.result import RunResult, RunStatus, read_samples
from llmexp.report.table import build_report

MICRO, SEQ_LEN, WARMUP, STEPS = 2, 16, 1, 3
PROGRAM = """
import sys, torch
from torch import distributed, nn
from llmexp import hook

distributed.init_process_group("gloo")
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Embedding(64, 32), nn.Linear(32, 64)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
ids = torch.randint(64, ({micro}, {seq_len}))
for step in range(int(sys.argv[1])):
    loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("loss", step, loss.item())
    {report}
"""
REPORT = "hook.step(tokens=ids.numel(), loss=loss)"

TRAINER = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
from llmexp.launchers.trainer_callback import StepCallback

model = LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2))
options = {"max_steps": 20, "save_strategy": "no", "report_to": [], "use_cpu": True, "disable_tqdm": True}
arguments = TrainingArguments("unused", per_device_train_batch_size=MICRO, logging_steps=1, **options)
data = [{"input_ids": ids, "labels": ids} for ids in torch.randint(64, (64, SEQ_LEN))]
trainer = Trainer(model, arguments, train_dataset=data, callbacks=[StepCallback(tokens=MICRO * SEQ_LEN)])
trainer.train()
"""

Run = Callable[..., tuple[RunResult, Path]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run the program with one thing changed; return its result and the repeat's folder."""

    def start(steps: int = 50, report: str = REPORT, seq_len: int = SEQ_LEN, text: str = PROGRAM) -> tuple[RunResult, Path]:
        program = tmp_path / "train.py"
        program.write_text(text.format(micro=MICRO, seq_len=seq_len, report=report) if text is PROGRAM else text)
        plan = make_plan(f"engine.options.command='{program} {steps}'", f"sweep.outputs={tmp_path}", *WORDS)
        result = run_one(plan, folder := folder_of(plan))
        assert result is not None
        return result, folder.path / "repeat.0"

    return start


WORDS = (
    *("engine=script", "model=tiny", "hardware=cpu", "parallelism.dp=2", f"batch.micro={MICRO}", f"data.seq_len={SEQ_LEN}"),
    *("measure=smoke", f"measure.warmup_steps={WARMUP}", f"measure.steps={STEPS}"),
)


@pytest.mark.ranks
def test_a_program_is_measured_as_long_as_wanted_and_by_its_own_account(run: Run):
    result, repeat = run()
    assert result.status is RunStatus.SUCCESS, result.reason
    for rank in range(2):
        samples = read_samples(repeat / f"samples.{rank}.jsonl")
        printed = [float(line.split()[2]) for line in (repeat / f"log.{rank}.txt").read_text().splitlines() if line.startswith("loss ")]
        assert [sample.warmup for sample in samples] == [True] * WARMUP + [False] * STEPS
        assert [sample.loss for sample in samples] == pytest.approx(printed)
        assert all(earlier.t_end_s <= later.t_start_s for earlier, later in pairwise(samples))
    window_s = sum(sample.t_end_s - sample.t_start_s for sample in samples[WARMUP:])
    rate = result.metrics["tokens_per_s"]
    assert rate is not None
    assert rate.mean == pytest.approx(2 * MICRO * SEQ_LEN * STEPS / window_s, rel=0.5)
    assert result.metrics["mfu"] is None  # nobody here knows what model that was
    assert result.what_ran["backend"] == "gloo"
    title = build_report([RunFolder(repeat.parent)]).title
    assert "declared adamw" in title
    assert "train.py 50" in title


@pytest.mark.ranks
def test_a_trainer_of_hugging_face_reports_by_a_callback(run: Run):
    result, repeat = run(text=TRAINER.replace("MICRO", str(MICRO)).replace("SEQ_LEN", str(SEQ_LEN)))
    assert result.status is RunStatus.SUCCESS, result.reason
    samples = read_samples(repeat / "samples.1.jsonl")
    logged = re.findall(r"'loss': '?([\d.]+)", (repeat / "log.0.txt").read_text())
    # The Trainer prints four digits.
    assert [sample.loss for sample in samples[: len(logged)]] == pytest.approx([float(loss) for loss in logged], rel=1e-3)
    assert len(samples) == WARMUP + STEPS


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"report": "pass"}, "without reporting a step: call llmexp.hook.step"),
        ({"steps": 2}, "after 2 of 4 steps: let it take more"),
        ({"seq_len": 8}, "have 16 tokens a rank, but batch.micro 2 x batch.accumulation 1 x data.seq_len 16 = 32"),
        ({"report": "raise ValueError('a mistake of mine')"}, "ValueError: a mistake of mine"),
        ({"report": "sys.exit(3)"}, "exit code 3"),
    ],
)
def test_a_program_that_cannot_be_measured_says_why(run: Run, change, reason: str):
    result, _ = run(**change)
    assert result.status is RunStatus.FAILED
    assert reason in result.reason


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("", "needs engine.options.command='train.py"),
        ("missing.py --lr 1", "missing.py: No such file"),
    ],
)
def test_a_command_that_starts_nothing_is_said_before_anything_runs(command: str, reason: str):
    with pytest.raises(ConfigError, match=reason):
        make_plan("engine=script", f"engine.options.command='{command}'")


def test_another_program_is_another_run(tmp_path: Path):
    program, ids = tmp_path / "train.py", set()
    for text in ("pass", "import sys"):
        program.write_text(text)
        ids.add(make_plan("engine=script", f"engine.options.command={program}").id)
    assert len(ids) == 2


def test_a_method_is_not_claimed_for_a_program(tmp_path: Path):
    (tmp_path / "train.py").touch()
    plan = make_plan("engine=script", f"engine.options.command={tmp_path / 'train.py'}", "method=F+R")
    assert plan.skip is not None
    assert "cannot apply method=F+R" in plan.skip


def test_the_hook_does_nothing_outside():
    hook.step(tokens=1, loss=0.5)
