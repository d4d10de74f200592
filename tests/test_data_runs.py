"""Instructions and growing sequences as a person types them, on a real rank: what is read is what is counted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from llmexp.record.folder import find_runs
from llmexp.record.result import RunResult, StepSample, read_samples

pytestmark = [pytest.mark.ranks, pytest.mark.long]
WORDS = ("hardware=cpu", "engine.launcher=fork", "parallelism.dp=1", "precision=fp32", "measure=smoke", "measure.profile=false", "tracking=none")


def run(folder: Path, *words: str) -> tuple[str, dict[str, tuple[RunResult, list[StepSample]]]]:
    """What was printed, and by the run's own words its result and samples."""
    command = [sys.executable, "-m", "llmexp", *WORDS, *words]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "COLUMNS": "300"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    found = {}
    for one in find_runs(folder / "outputs"):
        result = one.result()
        assert result is not None
        found[result.command] = result, read_samples(one.path / "repeat.0" / "samples.0.jsonl")
    return done.stdout, found


def test_packed_and_padded_instructions_are_two_rows_with_their_real_tokens(tmp_path: Path) -> None:
    said, runs = run(tmp_path, "engine=torch", "task=finetune", "method=L+F", "data.pack=false,true", "batch.micro=4")
    (padded, padded_steps), (packed, packed_steps) = (
        next(one for words, one in runs.items() if f"data.pack={kind}" in words) for kind in (False, True)
    )
    assert "instructions padded" in said
    assert "real tokens/s: the same without padding" in said
    assert [step.samples for step in padded_steps] == [4, 4, 4]
    assert all(step.positions == 4 * 512 > step.real_tokens for step in padded_steps)
    assert sum(step.samples for step in packed_steps) > 1.5 * sum(step.samples for step in padded_steps)
    assert sum(step.real_tokens for step in packed_steps) > 1.5 * sum(step.real_tokens for step in padded_steps)
    assert (padded.what_ran["attention_implementation"], packed.what_ran["attention_implementation"]) == ("llmexp_sdpa", "llmexp_sdpa_records")
    assert padded.what_ran["data_records"] == packed.what_ran["data_records"] == 400


def test_sequences_grow_from_step_to_step(tmp_path: Path) -> None:
    said, runs = run(tmp_path, "engine=torch", "data.seq_len=64", "data.seq_len_schedule=[16,32,64]", "measure.steps=5")
    ((result, steps),) = runs.values()
    assert "growing 16 32 64" in said
    assert [step.positions for step in steps] == [16, 16, 32, 32, 64, 64]
    assert result.metrics["tflops_per_s_per_gpu"] is not None
    assert result.stability is not None
    assert result.stability.verdict != "stable"


def test_every_engine_learns_the_same_from_padded_instructions(tmp_path: Path) -> None:
    _, runs = run(tmp_path, "engine=deepspeed,megatron,torch", "task=finetune", "data.seq_len=256", "optimizer.lr=1e-3")
    (first, steps), *others = runs.values()
    assert len(others) == 2
    assert steps[-1].loss < steps[0].loss - 0.2
    for result, same in others:
        assert [step.loss for step in same] == pytest.approx([step.loss for step in steps], abs=1e-5), (result.engine, first.engine)
        assert [step.real_tokens for step in same] == [step.real_tokens for step in steps]
