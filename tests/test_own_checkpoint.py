"""A person's own records and checkpoint, fine-tuned by two overrides, leave an adapter that PEFT loads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from patience import HANG_S
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from llmexp.record.folder import RunFolder
from llmexp.record.mlflow import sync
from llmexp.record.result import RunStatus
from llmexp.schema import TrackingConfig

pytestmark = [pytest.mark.sweep, pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")]
SIZES = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    always = (
        "task=finetune",
        "method=L",
        "hardware=cpu",
        "parallelism.dp=2",
        "data.seq_len=64",
        "measure=smoke",
        "tracking=none",
    )
    return subprocess.run(
        [sys.executable, "-m", "llmexp", *always, *words], cwd=folder, capture_output=True, text=True, timeout=HANG_S
    )


def test_two_overrides_leave_an_adapter(tmp_path: Path) -> None:
    LlamaForCausalLM(LlamaConfig(**SIZES)).save_pretrained(tmp_path / "mine", max_shard_size="60KB")
    records = [{"instruction": f"What comes after {number}?", "output": f"{number + 1}."} for number in range(60)]
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    done = run(tmp_path, "model=./mine", "data=./mine.jsonl")
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = map(RunFolder, (tmp_path / "outputs" / "main").glob("mine_L_*"))
    result = folder.result()
    assert result is not None
    assert result.status is RunStatus.SUCCESS
    assert result.what_ran["weights"].startswith("pretrained, ")
    assert result.what_ran["saved"] == ["repeat.0/adapter"]
    from peft import PeftModel  # seconds, for all that collect this file

    base = AutoModelForCausalLM.from_pretrained(tmp_path / "mine")
    ids = torch.arange(64)[None]
    before = base(input_ids=ids).logits
    adapted = PeftModel.from_pretrained(base, folder.repeat(0) / "adapter")
    assert not torch.equal(adapted(input_ids=ids).logits, before)
    with adapted.disable_adapter():
        assert torch.equal(adapted(input_ids=ids).logits, before)
    assert _as_mlflow_loads_it(tmp_path, folder) == repr(_continued(adapted, [*b"Which"]))


def _continued(model: Any, asked: list[int]) -> str:
    found = model.generate(input_ids=torch.tensor([asked]), max_new_tokens=6, do_sample=False, eos_token_id=256)
    return bytes(token for token in found[0, len(asked) :].tolist() if token < 256).decode(errors="replace")


SNIPPET = """
import sys, mlflow, pandas
mlflow.set_tracking_uri(sys.argv[1])
[model] = mlflow.search_logged_models(experiment_ids=["1"], output_format="list")
loaded = mlflow.pyfunc.load_model(model.model_uri)
print(*map(repr, loaded.predict(pandas.DataFrame({"prompt": ["Which"]}), {"max_new_tokens": 6})))
"""


def _as_mlflow_loads_it(place: Path, folder: RunFolder) -> str:
    uri = f"sqlite:///{place}/mlflow.db"
    sync([folder], TrackingConfig(name="mlflow", uri=uri))
    loaded = subprocess.run(
        [sys.executable, "-c", SNIPPET, uri], capture_output=True, text=True, timeout=HANG_S, check=True
    )
    return loaded.stdout.splitlines()[-1]


def test_a_truncated_shard_stops_before_anything_starts(tmp_path: Path) -> None:
    LlamaForCausalLM(LlamaConfig(**SIZES)).save_pretrained(tmp_path / "mine", max_shard_size="60KB")
    shard = next((tmp_path / "mine").glob("model-00002*"))
    shard.write_bytes(shard.read_bytes()[:-1])
    done = run(tmp_path, "model=./mine")
    assert done.returncode == 2
    assert done.stderr.startswith(f"llmexp: model.path=mine: shard {shard.name} is truncated: it has ")
    assert not (tmp_path / "outputs").exists()


def test_a_hub_name_without_a_network_fails_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    done = run(tmp_path, "model=someone/small")
    assert done.returncode == 1
    (folder,) = map(RunFolder, (tmp_path / "outputs" / "main").glob("small_L_*"))
    result = folder.result()
    assert result is not None
    assert result.reason.startswith(
        "model.path=someone/small is neither a local folder nor in the Hugging Face cache, "
        "and the hub cannot be reached: "
    )
