"""A checkpoint's tensors in transformers' models, in one process; what does not fit is named in one line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import checkpoints
import pytest
import torch
from patience import HANG_S
from planning import make_plan
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    GPT2Config,
    LlamaConfig,
    MixtralConfig,
    PreTrainedModel,
    Qwen3Config,
    Qwen3MoeConfig,
)

from llmexp.errors import ConfigError
from llmexp.launchers.models import assembly
from llmexp.launchers.models.seeding import fill
from llmexp.launchers.models.weights import weights_of
from llmexp.record.result import to_json

CPU = torch.device("cpu")
QWEN3 = Qwen3Config(**checkpoints.SIZES, head_dim=16, tie_word_embeddings=True)
GPT2 = GPT2Config(vocab_size=300, n_embd=32, n_layer=2, n_head=2, n_positions=64)


def load(folder: Path, *overrides: str) -> PreTrainedModel:
    words = (
        "hardware=cpu",
        "model=hf",
        f"model.path={folder}",
        "model.weights=pretrained",
        "precision=fp32",
        "data.seq_len=64",
    )
    return assembly.seeded_model(make_plan(*words, *overrides), CPU)


def same(model: PreTrainedModel, expected: Any) -> None:
    theirs = dict(expected.named_parameters())
    assert theirs.keys() == {name for name, _ in model.named_parameters()}
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, theirs[name]), name


@pytest.mark.parametrize("config", [LlamaConfig(**checkpoints.SIZES), QWEN3, GPT2], ids=["llama", "qwen3-tied", "gpt2"])
@pytest.mark.parametrize("shard_size", ["5GB", "40KB"])
def test_every_parameter_is_the_one_that_transformers_loads(tmp_path: Path, config: Any, shard_size: str) -> None:
    checkpoints.write(tmp_path, config, shard_size)
    same(load(tmp_path), AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32))


def test_values_are_converted_to_the_parameters_dtype(tmp_path: Path) -> None:
    checkpoints.write(tmp_path)
    same(load(tmp_path, "precision=bf16_pure"), AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16))
    checkpoints.write(tmp_path / "bf16", dtype=torch.bfloat16)
    same(load(tmp_path / "bf16"), AutoModelForCausalLM.from_pretrained(tmp_path / "bf16", dtype=torch.float32))


def test_a_checkpoint_saved_without_the_head_has_no_prefix(tmp_path: Path) -> None:
    checkpoints.write(tmp_path, QWEN3)
    AutoModel.from_pretrained(tmp_path).save_pretrained(tmp_path / "below")
    (tmp_path / "below" / "config.json").write_bytes((tmp_path / "config.json").read_bytes())
    assert "embed_tokens.weight" in load_file(tmp_path / "below" / "model.safetensors")
    same(load(tmp_path / "below"), AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32))


def test_an_adapters_parameters_come_from_the_seed(tmp_path: Path) -> None:
    model = load(checkpoints.write(tmp_path))
    source = weights_of(
        make_plan("hardware=cpu", "model=hf", f"model.path={tmp_path}", "model.weights=pretrained").config
    )(model)
    name = "model.layers.0.self_attn.q_proj.lora_A.default.weight"
    given, seeded = torch.empty(4, 64), torch.empty(4, 64)
    source(name, given)
    fill(name, seeded, 0)
    assert torch.equal(given, seeded)


def refused(folder: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load(folder)
    (line,) = str(caught.value).splitlines()
    return line.removeprefix(f"model.path={folder}: ")


def change(folder: Path, **values: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (
            {"num_hidden_layers": 3},
            "it lacks model.layers.2.self_attn.q_proj.weight, model.layers.2.self_attn.k_proj.weight, ",
        ),
        (
            {"num_hidden_layers": 1},
            "it has model.layers.1.input_layernorm.weight, model.layers.1.mlp.down_proj.weight, ",
        ),
        (
            {"intermediate_size": 100},
            "its shapes differ from its config.json: model.layers.0.mlp.gate_proj.weight [96, 64], ",
        ),
        (
            {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 16},
            "it lacks model.layers.0.self_attn.q_norm.weight, ",
        ),
        ({"model_type": "other"}, "The checkpoint you are trying to load has model type `other`"),
        (
            {"model_type": "other", "auto_map": {"AutoConfig": "mine.Config"}},
            "it ships its own model code: set model.trust_remote_code=true",
        ),
    ],
)
def test_another_model_than_the_configurations_is_refused(tmp_path: Path, changed: dict[str, Any], reason: str) -> None:
    change(checkpoints.write(tmp_path), **changed)
    assert refused(tmp_path).startswith(reason)


def test_old_checkpoints_may_hold_buffers(tmp_path: Path) -> None:
    path = checkpoints.write(tmp_path) / "model.safetensors"
    save_file(load_file(path) | {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)}, path, {"format": "pt"})
    same(load(tmp_path), AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32))


MIXTRAL = MixtralConfig(**checkpoints.SIZES, num_local_experts=4, num_experts_per_tok=2)


QWEN3_MOE = Qwen3MoeConfig(
    **checkpoints.SIZES, head_dim=16, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32
)


@pytest.mark.parametrize("config", [MIXTRAL, QWEN3_MOE], ids=["mixtral", "qwen3-moe"])
def test_experts_are_stacked_as_transformers_stacks_them(tmp_path: Path, config: Any) -> None:
    checkpoints.write(tmp_path, config, "60KB")
    same(load(tmp_path), AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32))


def test_other_experts_than_the_configurations_are_refused(tmp_path: Path) -> None:
    change(checkpoints.write(tmp_path, MIXTRAL), num_local_experts=5)
    assert refused(tmp_path).startswith("it lacks model.layers.0.mlp.experts.gate_up_proj, ")
    change(tmp_path, num_local_experts=3)
    assert refused(tmp_path).startswith("it has model.layers.0.block_sparse_moe.experts.3.w1.weight, ")
    change(tmp_path, num_local_experts=4, intermediate_size=100)
    assert refused(tmp_path).startswith(
        "its shapes differ from its config.json: model.layers.0.mlp.experts.gate_up_proj [4, 192, 64], "
    )


PEAK = """
import resource, sys, torch, transformers.models.llama.modeling_llama, safetensors
from llmexp.launchers.models import assembly
from llmexp.launchers.models.hub import folder_of
from llmexp.training.plan.training_plan import TrainingPlan
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
plan, before = TrainingPlan.model_validate_json(sys.stdin.read(), strict=False), peak()
model = assembly.seeded_model(plan, torch.device("cpu"))
print(peak() - before, sum(parameter.nbytes for parameter in model.parameters()))
"""


@pytest.mark.slow
def test_loading_takes_the_model_s_memory_and_a_few_tensors_more(tmp_path: Path) -> None:
    sizes = {"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 12, "vocab_size": 4096}
    checkpoints.write(tmp_path, LlamaConfig(**{**checkpoints.SIZES, **sizes}))
    plan = make_plan("hardware=cpu", "model=hf", f"model.path={tmp_path}", "model.weights=pretrained", "precision=fp32")
    done = subprocess.run(
        [sys.executable, "-c", PEAK], input=to_json(plan), capture_output=True, text=True, timeout=HANG_S
    )
    assert done.returncode == 0, done.stderr
    grown, model = map(int, done.stdout.split()[-2:])
    assert grown < 1.4 * model  # a second copy would be twice as much


CODE = """
from transformers import LlamaConfig, LlamaForCausalLM

class Config(LlamaConfig):
    model_type = "mine"

class Model(LlamaForCausalLM):
    config_class = Config
"""


def test_code_that_is_trusted_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    checkpoints.write(tmp_path)
    (tmp_path / "mine.py").write_text(CODE)
    change(
        tmp_path,
        model_type="mine",
        architectures=["Model"],
        auto_map={"AutoConfig": "mine.Config", "AutoModelForCausalLM": "mine.Model"},
    )
    assert "model.trust_remote_code=true" in refused(tmp_path)
    assert type(load(tmp_path, "model.trust_remote_code=true")).__name__ == "Model"
