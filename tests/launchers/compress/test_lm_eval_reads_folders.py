"""lm-evaluation-harness, in an environment of its own, reads a compressed model's folder and finds its quality."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from math import log
from pathlib import Path

import pytest
from patience import HANG_S
from small_llama import MakePlan

from llmexp.compress.record import DocumentSample
from llmexp.launchers.compress import worker
from llmexp.launchers.data.text_files import library_modules
from llmexp.launchers.data.tokenizers import save_bytes
from llmexp.launchers.rank.frame import Rank
from llmexp.record.samples import read_samples

pytestmark = [pytest.mark.slow, pytest.mark.long]
PYTHON = os.environ.get("LLMEXP_LM_EVAL_PYTHON")
TASK = """
task: held_out
dataset_path: json
dataset_kwargs: {{data_files: {{test: {documents}}}}}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{{{text}}}}"
metric_list: [{{metric: bits_per_byte, aggregation: bits_per_byte, higher_is_better: false}}]
"""


@pytest.mark.skipif(not PYTHON, reason="set LLMEXP_LM_EVAL_PYTHON to an interpreter that has lm-eval")
def test_it_finds_the_bits_a_byte_that_the_run_found(
    trained_llama: Path, compress_plan: MakePlan, tmp_path: Path
) -> None:
    source = shutil.copytree(trained_llama, tmp_path / "source")
    save_bytes(source, 320)
    text = tmp_path / "text"
    text.mkdir()
    for place in library_modules()[:40]:
        (text / place.name).write_bytes(place.read_bytes())
    rank = Rank(0, 0, 1, tmp_path / "repeat.0")
    rank.folder.mkdir()
    worker.work(compress_plan("magnitude", model=source, text={"files": [str(text)]}), rank)
    samples = read_samples(rank.samples_path, DocumentSample)
    own = sum(each.nll for each in samples) / sum(each.tokens for each in samples) / log(2)
    assert _bits_a_byte(rank.folder / "model", text, tmp_path) == pytest.approx(own, rel=0.15)


def _bits_a_byte(model: Path, text: Path, folder: Path) -> float:
    documents = folder / "documents.jsonl"
    read = [path.read_text(errors="replace")[:384] for path in sorted(text.iterdir())]
    documents.write_text("".join(json.dumps({"text": each}) + "\n" for each in read if each))
    (folder / "held_out.yaml").write_text(TASK.format(documents=documents))
    command = [str(PYTHON), "-m", "lm_eval", "--model", "hf", "--model_args", f"pretrained={model},max_length=64"]
    command += ["--include_path", str(folder), "--tasks", "held_out", "--device", "cpu", "--batch_size", "1"]
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(folder / "cache")}
    ended = subprocess.run(command, env=os.environ | offline, capture_output=True, text=True, timeout=HANG_S)
    found = re.search(r"bits_per_byte\s*\|[^|]*\|\s*([\d.]+)", ended.stdout)
    assert found, ended.stderr[-2000:]
    return float(found[1])
