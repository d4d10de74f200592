"""Instructions and growing sequences on a real rank: what is read is what is counted."""

from __future__ import annotations

from pathlib import Path

import pytest
from planning import make_plan

from llmexp.launch.run import run_one
from llmexp.record.folder import RunFolder
from llmexp.record.result import RunResult
from llmexp.record.samples import StepSample, read_samples
from llmexp.report.table import build_report
from llmexp.report.terminal import print_report
from llmexp.sweep.measuring import folder_of

pytestmark = [pytest.mark.ranks, pytest.mark.long]
WORDS = (
    *("hardware=cpu", "engine=torch", "engine.launcher=fork", "parallelism.dp=1"),
    *("measure=smoke", "measure.profile=false", "measure.threads_per_rank=1"),
)


def run(folder: Path, *words: str) -> tuple[RunFolder, RunResult, list[StepSample]]:
    """Measure it in this process, whose forked ranks' parent serves all runs of this file."""
    plan = make_plan(*WORDS, f"sweep.outputs={folder}", *words)
    result = run_one(plan, ran := folder_of(plan))
    assert result is not None
    assert result.status == "success", result.reason
    return ran, result, list(read_samples(ran.repeat(0) / "samples.0.jsonl", StepSample))


@pytest.mark.sweep
def test_packed_and_padded_instructions_are_two_rows_with_their_real_tokens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    words = ("task=finetune", "method=L+F", "batch.micro=2", "model.num_layers=1")
    (padded_folder, padded, padded_steps), (packed_folder, packed, packed_steps) = (
        run(tmp_path, *words, f"data.pack={pack}") for pack in ("false", "true")
    )
    print_report(build_report([padded_folder, packed_folder]))
    said = capsys.readouterr().out
    assert "instructions padded" in said
    assert "real tokens/s: the same without padding" in said
    assert [step.samples for step in padded_steps] == [2, 2, 2]
    assert all(step.positions == 2 * 512 > step.real_tokens for step in padded_steps)
    assert sum(step.samples for step in packed_steps) > 1.5 * sum(step.samples for step in padded_steps)
    assert sum(step.real_tokens for step in packed_steps) > 1.5 * sum(step.real_tokens for step in padded_steps)
    assert (padded.what_ran["attention_implementation"], packed.what_ran["attention_implementation"]) == (
        "llmexp_sdpa",
        "llmexp_sdpa_records",
    )
    assert padded.what_ran["data_records"] == packed.what_ran["data_records"] == 400


def test_sequences_grow_from_step_to_step(tmp_path: Path) -> None:
    folder, result, steps = run(tmp_path, "data.seq_len=64", "data.seq_len_schedule=[16,32,64]", "measure.steps=5")
    assert "growing 16 32 64" in build_report([folder]).sections[0].title
    assert [step.positions for step in steps] == [16, 16, 32, 32, 64, 64]
    assert result.metrics["tflops_per_s_per_gpu"] is not None
    assert result.stability is not None
    assert result.stability.verdict != "stable"
