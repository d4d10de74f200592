"""task=compress with a real process, as a person types it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from compressed_runs import SIZES
from patience import HANG_S
from transformers import LlamaConfig, LlamaForCausalLM

from llmexp.record.folder import find_runs

SMALL = ("text.seq_len=32", "text.calibration_sequences=2", "text.held_out_documents=3", "text.document_tokens=64")

pytestmark = pytest.mark.ranks


def test_a_folder_becomes_a_smaller_one_that_is_reported_and_can_be_made_smaller_again(tmp_path: Path) -> None:
    LlamaForCausalLM(LlamaConfig(**SIZES)).save_pretrained(tmp_path / "mine")
    words = ["task=compress", "hardware=cpu", "tracking=none", "model=./mine", "compress=layers", *SMALL]
    done = subprocess.run(
        [sys.executable, "-m", "llmexp", *words], cwd=tmp_path, capture_output=True, text=True, timeout=HANG_S
    )
    assert done.returncode == 0, done.stderr
    (run,) = find_runs(tmp_path / "outputs")
    result = run.result()
    assert result
    ratio, low, high = (result.metrics[f"perplexity_ratio{end}"] for end in ("", "_low", "_high"))
    assert ratio
    assert low
    assert high
    assert low.mean <= ratio.mean <= high.mean
    assert "mine made smaller on cpu, held-out documents: 3 of 64 tokens" in done.stdout
    smaller = run.repeat(0) / "model"
    assert json.loads((smaller / "config.json").read_text())["num_hidden_layers"] == 3
    again = ["plan", "task=compress", "hardware=cpu", f"model={smaller}", "compress=layers", "compress.share=0.4"]
    planned = subprocess.run(
        [sys.executable, "-m", "llmexp", *again], cwd=tmp_path, capture_output=True, text=True, timeout=HANG_S
    )
    assert planned.returncode == 0, planned.stderr
