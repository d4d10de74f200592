"""Somebody's own training program on two real ranks.

What it reports is what is measured, and what it gets wrong is said.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from marks import slow
from planning import make_plan

from llmexp import hook
from llmexp.errors import ConfigError
from llmexp.launch.run import run_one
from llmexp.launchers.script.worker import run_program
from llmexp.record.folder import RunFolder
from llmexp.record.result import RunResult, RunStatus
from llmexp.record.samples import StepSample, read_samples
from llmexp.report.table import build_report
from llmexp.sweep.measuring import folder_of
from llmexp.training.plan.training_plan import TrainingPlan

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

# What trains nothing, for what is said of its reports alone.
REPORTING = """
import sys
from llmexp import hook

for step in range(int(sys.argv[1])):
    print("loss", step, 1.0)
    {report}
"""

# The configuration's model=tiny, and nothing of llmexp.
TRAINER = """
import tempfile, torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

sizes = {"vocab_size": 512, "hidden_size": 128, "intermediate_size": 344}
sizes |= {"num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2}
options = {"max_steps": 20, "logging_steps": 1, "save_strategy": "no", "report_to": []}
options |= {"use_cpu": True, "disable_tqdm": True}
data = [{"input_ids": ids, "labels": ids} for ids in torch.randint(64, (64, {seq_len}))]
arguments = TrainingArguments(tempfile.mkdtemp(), per_device_train_batch_size={micro}, **options)
Trainer(LlamaForCausalLM(LlamaConfig(**sizes)), arguments, train_dataset=data).train()
"""

# As pretrain_gpt.py of Megatron-LM does it: the last rank prints, and what it prints ends with a full line.
PRINTING = """
import sys, torch
from torch import distributed

distributed.init_process_group("gloo")
for step in range(1, int(sys.argv[1]) + 1):
    distributed.all_reduce(torch.ones(8))
    if distributed.get_rank() == 1:
        print(f" [2026-11-21 10:00:00] iteration {step:8d}/      50 | consumed samples: {4 * step:12d} |", end="")
        print(" elapsed time per iteration (ms): 1.0 | learning rate: 1.000000E-04 |", end="")
        print(f" global batch size: {4:5d} |", end="")
        print(f" lm loss: {1 / step:.6E} | loss scale: 1.0 | grad norm: 1.000 |")
"""

USAGE = """
import argparse

argparse.ArgumentParser(prog="train.py", description="which takes no number of steps").parse_args()
"""

Run = Callable[..., tuple[RunResult, Path]]
WORDS = (
    *(
        "engine=script",
        "model=tiny",
        "hardware=cpu",
        "parallelism.dp=2",
        f"batch.micro={MICRO}",
        f"data.seq_len={SEQ_LEN}",
    ),
    *("measure=smoke", f"measure.warmup_steps={WARMUP}", f"measure.steps={STEPS}", "measure.threads_per_rank=1"),
)


def assert_placed_in_time(repeat: Path, rank: int) -> None:
    path = repeat / f"samples.{rank}.jsonl"
    assert read_samples(path, StepSample)[-1].at_s == pytest.approx(path.stat().st_mtime, abs=5)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run the program with one thing changed; return its result and the repeat's folder."""

    def start(*words: str, steps: int = 50, report: str = REPORT, text: str = PROGRAM) -> tuple[RunResult, Path]:
        program = tmp_path / "train.py"
        for name, value in {"micro": MICRO, "seq_len": SEQ_LEN, "report": report}.items():
            text = text.replace(f"{{{name}}}", str(value))
        program.write_text(text)
        plan = make_plan(f"engine.options.command='{program} {steps}'", f"sweep.outputs={tmp_path}", *WORDS, *words)
        result = run_one(plan, folder := folder_of(plan))
        assert result is not None
        return result, folder.path / "repeat.0"

    return start


def test_what_a_program_starts_finds_its_modules_as_without_llmexp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "beside.py").touch()
    (tmp_path / "helper.py").write_text("import beside")
    (tmp_path / "train.py").write_text(
        "import subprocess, sys; subprocess.run([sys.executable, sys.argv[1]], check=True)"
    )
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", [])
    run_program([str(tmp_path / "train.py"), str(tmp_path / "helper.py")])


@pytest.mark.ranks
def test_a_program_is_measured_as_long_as_wanted_and_by_its_own_account(run: Run):
    result, repeat = run()
    assert result.status is RunStatus.SUCCESS, result.reason
    for rank in range(2):
        samples = read_samples(repeat / f"samples.{rank}.jsonl", StepSample)
        printed = [
            float(line.split()[2])
            for line in (repeat / f"log.{rank}.txt").read_text().splitlines()
            if line.startswith("loss ")
        ]
        assert [sample.warmup for sample in samples] == [True] * WARMUP + [False] * STEPS
        assert [sample.loss for sample in samples] == pytest.approx(printed)
        assert_placed_in_time(repeat, rank)
        assert all(earlier.t_end_s <= later.t_start_s for earlier, later in pairwise(samples))
    window_s = sum(sample.t_end_s - sample.t_start_s for sample in samples[WARMUP:])
    rate = result.metrics["tokens_per_s"]
    assert rate is not None
    assert rate.mean == pytest.approx(2 * MICRO * SEQ_LEN * STEPS / window_s, rel=0.5)
    assert result.metrics["mfu"] is None  # nobody here knows what model that was
    assert result.metrics["real_tokens_per_s"] is None  # nor what is padding
    assert result.what_ran["backend"] == "gloo"
    title = build_report([RunFolder(repeat.parent)]).sections[0].title
    assert "declared adamw" in title
    assert "script train.py, 2 ranks" in title


@pytest.mark.slow
@pytest.mark.ranks
def test_an_unedited_trainer_of_hugging_face_is_heard_and_its_model_held_against_the_configuration(run: Run):
    result, repeat = run("engine.options.preset=trainer", "precision=fp32", text=TRAINER)
    assert result.status is RunStatus.SUCCESS, result.reason
    samples = read_samples(repeat / "samples.1.jsonl", StepSample)
    logged = re.findall(r"'loss': '?([\d.]+)", (repeat / "log.0.txt").read_text())
    # The Trainer prints four digits.
    assert [sample.loss for sample in samples[: len(logged)]] == pytest.approx(
        [float(loss) for loss in logged], rel=1e-3
    )
    assert len(samples) == WARMUP + STEPS
    plan, rate, achieved = (
        TrainingPlan.read(repeat.parent / "plan.json"),
        result.metrics["tokens_per_s_per_gpu"],
        result.metrics["tflops_per_s_per_gpu"],
    )
    assert rate is not None
    assert result.metrics["parameters"].mean == plan.parameters
    assert achieved.mean == pytest.approx(rate.mean * plan.flops_per_token / 1e12)


@pytest.mark.slow
@pytest.mark.ranks
def test_steps_that_the_last_rank_prints_are_those_of_all_ranks(run: Run):
    result, repeat = run("engine.options.preset=megatron_lm", text=PRINTING)
    assert result.status is RunStatus.SUCCESS, result.reason
    first, last = (read_samples(repeat / f"samples.{rank}.jsonl", StepSample) for rank in range(2))
    assert [sample.loss for sample in last] == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4], abs=1e-6)
    own = {"memory_bytes": 0, "at_s": None}
    assert [sample.model_copy(update=own) for sample in first] == [sample.model_copy(update=own) for sample in last]
    for rank in range(2):
        assert_placed_in_time(repeat, rank)
    window_s, rate = last[-1].t_end_s - last[WARMUP].t_start_s, result.metrics["tokens_per_s"]
    assert rate is not None
    assert rate.mean == pytest.approx(2 * MICRO * SEQ_LEN * STEPS / window_s, rel=0.1)
    assert result.what_ran["steps_told_by"] == "output of rank 1"
    assert result.environment["communication"]["backend"] == "gloo"
    report = build_report([RunFolder(repeat.parent)])
    assert f"batch {MICRO} a rank, seq_len declared {SEQ_LEN}" in report.sections[0].title


@pytest.mark.ranks
def test_a_program_that_prints_no_such_line_is_told_with_its_last_one(run: Run):
    result, _ = run("engine.options.pattern='step (?P<loss>[0-9.]+)'", text=PRINTING, steps=3)
    assert result.status is RunStatus.FAILED
    assert (
        "no line matches step (?P<loss>[0-9.]+); its ranks printed 3 lines, the last of rank 1: ' [2026"
        in result.reason
    )


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        slow({"report": "pass", "steps": 5}, "without reporting a step: call llmexp.hook.step"),
        (
            {"text": "print('one'); print('two')"},
            "engine.options.pattern='…(?P<loss>[0-9.]+)…'; its ranks printed 2 lines, the last of rank 0: 'two'",
        ),
        ({"steps": 2}, "after 2 of 4 steps: let it run longer"),
        (
            {"report": "hook.step(tokens=16, loss=1.0)"},
            "have 16 tokens a rank, but batch.micro 2 x batch.accumulation 1 x data.seq_len 16 = 32",
        ),
        slow({"report": "raise ValueError('a mistake of mine')"}, "ValueError: a mistake of mine"),
        slow({"text": USAGE}, "exit code 2; its last line: train.py: error: unrecognized arguments: 50"),
        slow({"text": "pass"}, "without reporting a step: call llmexp.hook.step"),
    ],
)
def test_a_program_that_cannot_be_measured_says_why(run: Run, change, reason: str):
    reporting = {"text": REPORTING, "report": f"hook.step(tokens={MICRO * SEQ_LEN}, loss=1.0)"}
    result, _ = run("parallelism.dp=1", "engine.launcher=python", **reporting | change)
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


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            ["preset=megatron"],
            "preset 'megatron': did you mean megatron_lm? choices are megatron_lm, torchtitan, nanogpt, llmq, trainer, "
            "trl, llamafactory",
        ),
        (
            ["pattern='loss: (?P<loss>.*'"],
            "pattern=loss: (?P<loss>.* is not a Python regular expression: missing ), unterminated subpattern",
        ),
        (["pattern='loss: (.*)'"], "pattern=loss: (.*) needs a group for the loss: (?P<loss>"),
        (
            ["pattern='(?P<lost>.*)'"],
            "unknown group of engine.options.pattern 'lost': did you mean loss? choices are loss, step, samples, "
            "tokens",
        ),
        (["pattern='(?P<loss>.*)'", "preset=trl"], "preset=trl: a preset has its own pattern: leave one of them out"),
        (
            ["patern=loss"],
            "unknown engine.options of engine=script 'patern': did you mean pattern? choices are command, preset, "
            "pattern",
        ),
    ],
)
def test_what_no_line_could_match_is_said_before_anything_runs(tmp_path: Path, words: list[str], reason: str):
    (tmp_path / "train.py").touch()
    with pytest.raises(ConfigError, match=re.escape(reason)):
        make_plan(
            "engine=script",
            f"engine.options.command={tmp_path / 'train.py'}",
            *(f"engine.options.{word}" for word in words),
        )


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
    assert "cannot apply method=F+R" in plan.skip.reason


def test_the_hook_does_nothing_outside():
    class Loss:
        def __getattr__(self, name: str):
            raise AssertionError(f"the hook asked for {name}")

    hook.model(Loss())
    assert hook.step(tokens=1, loss=Loss()) is None
    assert not hook.is_heard()
