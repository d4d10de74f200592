"""What saving writes beside the weights, in one process.

That the weights are those of the ranks is shown by test_checkpoints.py.
"""

from __future__ import annotations

import json
import os
from math import prod
from pathlib import Path
from typing import Any

import checkpoints
import pytest
import torch
from families import GIVEN
from planning import make_plan
from safetensors.torch import load_file
from transformers import AutoConfig, AutoTokenizer

from llmexp.errors import RecordError
from llmexp.inputs.architecture.reading import read_architecture
from llmexp.inputs.byte_tokens import END_OF_DOCUMENT
from llmexp.inputs.checkpoint import Checkpoint
from llmexp.launchers.models import assembly
from llmexp.launchers.rank.frame import Rank
from llmexp.launchers.training.saving import Saving
from llmexp.registry import get_task
from llmexp.training.plan.artifacts import kept_weights
from llmexp.training.plan.training_plan import TrainingPlan

pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")
CPU = torch.device("cpu")


def plan(folder: Path, *overrides: str) -> TrainingPlan:
    return make_plan(
        "hardware=cpu",
        "task=finetune",
        "method=L",
        "model=hf",
        f"model.path={folder}",
        "model.weights=pretrained",
        *overrides,
    )


def save(plan: TrainingPlan, repeat: Path) -> dict[str, Any]:
    """As a single rank would."""
    model = assembly.with_atoms(assembly.seeded_model(plan, CPU), plan)
    return Saving(plan, Rank(0, 0, 1, repeat), model, CPU).save(kept(plan))


def kept(plan: TrainingPlan) -> tuple[str, ...]:
    return kept_weights(plan.config, assembly.method_of(plan).techniques)


@pytest.mark.parametrize(
    ("overrides", "names"),
    [
        ((), ("adapter",)),
        (("adapter.save=false",), ()),
        (("adapter.save=false", "task.save_model=true"), ("model",)),
        (("method=Naive",), ()),
        (("method=Naive", "task.save_model=true"), ("model",)),
        (("model.weights=random",), ()),
        (("model.weights=random", "adapter.save=true"), ("adapter",)),
    ],
)
def test_what_is_kept_by_default_and_by_wish(
    tmp_path: Path, overrides: tuple[str, ...], names: tuple[str, ...]
) -> None:
    assert kept(plan(checkpoints.write(tmp_path), *overrides)) == names


def test_a_model_folder_has_its_configuration_dtype_and_tokenizer(tmp_path: Path) -> None:
    (checkpoints.write(tmp_path / "base") / "tokenizer.json").write_text("{}")
    said = save(plan(tmp_path / "base", "task.save_model=true", "precision=bf16_mixed"), tmp_path / "repeat.0")
    assert said == {"saved": ["repeat.0/adapter", "repeat.0/model"]}
    model = tmp_path / "repeat.0" / "model"
    assert (model / "tokenizer.json").read_text() == "{}"
    assert AutoConfig.from_pretrained(model).architectures == ["LlamaForCausalLM"]
    saved, base = load_file(model / "model.safetensors"), load_file(tmp_path / "base" / "model.safetensors")
    assert saved.keys() == base.keys()
    for name, values in saved.items():  # an adapter begins as nothing
        assert torch.equal(values, base[name].bfloat16()), name


def test_an_adapter_folder_has_peft_s_two_files_and_names_the_base(tmp_path: Path) -> None:
    save(
        plan(checkpoints.write(tmp_path / "base"), "adapter.rank=4", "adapter.targets=[q_proj]"), tmp_path / "repeat.0"
    )
    adapter = tmp_path / "repeat.0" / "adapter"
    assert sorted(path.name for path in adapter.iterdir()) == ["adapter_config.json", "adapter_model.safetensors"]
    os.umask(umask := os.umask(0o022))
    assert {oct(path.stat().st_mode & 0o777) for path in adapter.iterdir()} == {oct(0o666 & ~umask)}
    said = json.loads((adapter / "adapter_config.json").read_text())
    assert (said["peft_type"], said["r"], said["base_model_name_or_path"]) == ("LORA", 4, str(tmp_path / "base"))
    prefix = "base_model.model.model.layers.0.self_attn.q_proj"
    assert {name for name in load_file(adapter / "adapter_model.safetensors") if ".0." in name} == {
        f"{prefix}.lora_{side}.weight" for side in "AB"
    }


def test_what_cannot_be_written_is_one_line_and_leaves_nothing_that_looks_whole(tmp_path: Path) -> None:
    (tmp_path / "repeat.0").mkdir()
    (tmp_path / "repeat.0" / "adapter.unfinished").write_text("in the way")
    with pytest.raises(RecordError, match=r"repeat\.0/adapter could not be saved: .*File exists"):
        save(plan(checkpoints.write(tmp_path / "base")), tmp_path / "repeat.0")
    assert not (tmp_path / "repeat.0" / "adapter").exists()


PRETRAINED = ("hardware=cpu", "parallelism.dp=1", "engine=torch", "task.save_model=true")
SIZED = ("model=tiny", "model=tiny-moe", "model=tiny model.architecture=qwen3 model.tie_embeddings=true")


@pytest.mark.parametrize("words", [*SIZED, *(f"model={name}" for name in GIVEN)])
def test_what_a_plan_says_of_the_saved_model_is_what_lies_there(tmp_path: Path, words: str) -> None:
    small = [f"model.config.{key}={value}" for key, value in GIVEN.get(words.partition("=")[2], {}).items()]
    planned = make_plan(*PRETRAINED, *words.split(), *small)
    made = get_task("pretrain").made_model(planned)
    save(planned, tmp_path / "repeat.0")
    model = tmp_path / "repeat.0" / "model"
    said = json.loads((model / "config.json").read_text())
    assert read_architecture(made.config) == read_architecture(said)
    assert made.parameters == sum(prod(each.shape) for each in Checkpoint.read(model).tensors.values())
    if words in SIZED:
        assert {key: said[key] for key in made.config} == made.config
    tokenizer = AutoTokenizer.from_pretrained(model)
    assert made.tokenizer
    assert len(tokenizer) == said["vocab_size"]


def test_a_model_of_bytes_gets_their_tokenizer_which_knows_every_token(tmp_path: Path) -> None:
    save(make_plan(*PRETRAINED, "model=tiny", "data.tokenizer=bytes"), tmp_path / "repeat.0")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "repeat.0" / "model")
    text = "Grüße, 世界 🌍!\n\tprint(x)  # able zq"
    assert tokenizer(text).input_ids == list(text.encode())
    assert tokenizer.decode(list(text.encode())) == text
    assert tokenizer.eos_token_id == END_OF_DOCUMENT
    drawn = [300, 511, 257, 300]
    assert tokenizer(tokenizer.decode(drawn)).input_ids == drawn


def test_a_saved_model_gets_the_tokenizer_of_the_texts_that_it_read(tmp_path: Path) -> None:
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "tokenizer.json").write_text("{}")
    planned = make_plan(*PRETRAINED, "model=tiny", f"data.tokenizer={tmp_path / 'words'}")
    save(planned, tmp_path / "repeat.0")
    assert get_task("pretrain").made_model(planned).tokenizer
    assert (tmp_path / "repeat.0" / "model" / "tokenizer.json").read_text() == "{}"


@pytest.mark.parametrize(
    ("has_tokenizer", "words"), [(True, ()), (False, ()), (True, ("model.weights=random", "data=synthetic"))]
)
def test_a_folder_s_own_tokenizer_goes_with_its_weights(
    tmp_path: Path, has_tokenizer: bool, words: tuple[str, ...]
) -> None:
    folder = checkpoints.write(tmp_path / "base")
    if has_tokenizer:
        (folder / "tokenizer.json").write_text("{}")
    made = get_task("finetune").made_model(plan(folder, "task.save_model=true", *words))
    assert made.tokenizer is has_tokenizer
    assert made.config == json.loads((folder / "config.json").read_text())


def test_a_run_that_saves_no_whole_model_makes_none(tmp_path: Path) -> None:
    assert get_task("finetune").made_model(plan(checkpoints.write(tmp_path / "base"))) is None
