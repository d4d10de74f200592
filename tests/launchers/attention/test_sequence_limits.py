"""What ranks that share a sequence would train otherwise, by either engine, is a skip."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from planning import make_plan

SIZES = {
    "architectures": ["MixtralForCausalLM"],
    "model_type": "mixtral",
    "vocab_size": 288,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 4096,
}


def skip_of(*words: str) -> str:
    return str(make_plan("hardware=h100", "parallelism.cp=2", "method=F+R+Z3", "force=true", *words).skip)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("mamba2-2.7b", "layers of model=mamba2-2.7b keep a state along the sequence"),
        ("gemma3-1b", "it has no windows, and one of model=gemma3-1b ends within data.seq_len=4096"),
        ("olmo3-7b", "it has no windows, and one of model=olmo3-7b ends within data.seq_len=8192"),
        ("qwen3-8b", "None"),
        ("qwen3-30b-a3b", "None"),
        ("7b", "None"),
    ],
)
def test_presets(model: str, reason: str) -> None:
    seq_len = 8192 if model == "olmo3-7b" else 4096
    max_positions = ["model.max_positions=4096"] * (model == "7b")
    assert reason in skip_of("engine=deepspeed", f"model={model}", f"data.seq_len={seq_len}", *max_positions)


@pytest.mark.parametrize("engine", ["deepspeed", "torch"])
@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({}, "None"),
        ({"output_router_logits": True}, "output_router_logits of config.json balances experts over whole sequences"),
        ({"attention_dropout": 0.1}, "its ranks would drop different scores by attention_dropout=0.1"),
        ({"sliding_window": 100}, "it has no windows, and one of model=own ends within data.seq_len=352"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope_type=dynamic of config.json goes by the last"),
    ],
)
def test_folders(tmp_path: Path, engine: str, changed: dict[str, Any], reason: str) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(SIZES | changed))
    assert reason in skip_of(f"engine={engine}", "model=hf", f"model.path={folder}", "data.seq_len=352")
