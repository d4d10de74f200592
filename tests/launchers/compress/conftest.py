"""A small Llama that was trained for some seconds on real text, and plans that compress it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from small_llama import SIZES, MakePlan
from transformers import LlamaConfig, LlamaForCausalLM

from llmexp.compress.plan import CompressPlan
from llmexp.launchers.data.text_files import library_modules

CONF = Path(__file__).parents[3] / "conf"
STEPS, SEQUENCES, SEQ_LEN = 300, 8, 64
PARTS: dict[str, dict[str, Any]] = {
    "quantize": {"group_size": 32, "activations": None, "symmetric": True},
    "sparsify": {"sparsity": 0.5, "pattern": "free"},
    "prune": {"share": 0.25, "recovery": "none", "recovery_steps": 0},
}
TEXT = {"calibration_sequences": 64, "held_out_documents": 8, "document_tokens": 384}
KINDS = dict.fromkeys(("sparsegpt", "wanda", "magnitude"), "sparsify") | dict.fromkeys(
    ("mlp", "heads", "layers"), "prune"
)


@pytest.fixture(scope="session")
def trained_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a Llama that has read 150 thousand bytes of Python's library."""
    folder = tmp_path_factory.mktemp("trained")
    torch.manual_seed(0)
    read = torch.tensor(list(b"".join(path.read_bytes() for path in library_modules())))
    model, draw = LlamaForCausalLM(LlamaConfig(**SIZES)), random.Random(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=STEPS)
    for _ in range(STEPS):
        begins = [draw.randrange(len(read) - SEQ_LEN) for _ in range(SEQUENCES)]
        tokens = torch.stack([read[begin : begin + SEQ_LEN] for begin in begins])
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)
    return folder


@pytest.fixture
def compress_plan(request: pytest.FixtureRequest, tmp_path: Path) -> MakePlan:
    """Plan a method; keywords are keys of its section, `text` and `engine_config` those of others."""

    def plan(
        method: str,
        text: dict[str, Any] | None = None,
        model: Path | None = None,
        engine_config: dict[str, Any] | None = None,
        **keys: Any,
    ) -> CompressPlan:
        config: dict[str, Any] = {
            group: OmegaConf.to_container(OmegaConf.load(CONF / group / f"{name}.yaml"))
            for group, name in (("hardware", "cpu"), ("runtime", "here"), ("tracking", "none"))
        }
        part = PARTS[KINDS.get(method, "quantize")]
        if KINDS.get(method, "quantize") == "quantize":
            part = part | {"weights": "int4"}
        config |= {
            "task": {"name": "compress"},
            "engine": {"name": "compress", "launcher": "python"},
            "measure": {"name": "smoke", "repeats": 1, "timeout_s": 600.0, "no_progress_timeout_s": 300.0},
            "model": {
                "name": "small",
                "architecture": "hf",
                "path": str(model or request.getfixturevalue("trained_llama")),
                "weights": "pretrained",
            },
            "compress": {"name": method, "method": method} | part | keys,
            "text": {"seq_len": SEQ_LEN} | TEXT | (text or {}),
            "sweep": {"name": "main", "outputs": str(tmp_path)},
            "seed": 0,
            "force": False,
            "rerun": "none",
        }
        given = {"argv": []}
        return CompressPlan(
            id="0" * 12, processes=1, devices=1, engine_config=engine_config or {}, command=given, config=config
        )

    return plan
