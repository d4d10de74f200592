"""The folder of random weights: what transformers reads from it, and when it is found again."""

from __future__ import annotations

import json
import random
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from llmexp.errors import BuildError, ConfigError
from llmexp.launchers.models.building import build, configuration
from llmexp.launchers.models.weights import seeded
from llmexp.launchers.serving.weights import model_folder
from llmexp.launchers.serving.weights.model_folder import FolderRequest, ensure_model_folder
from llmexp.launchers.serving.weights.model_writer import write
from llmexp.launchers.serving.words import text_of, tokens_of
from llmexp.schema import DenseModel
from llmexp.serving.config.load import ServedAdapters

TINY = DenseModel(
    name="small",
    architecture="llama",
    vocab_size=700,
    hidden_size=32,
    intermediate_size=48,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    max_positions=64,
)
WANTED = FolderRequest(model=TINY, dtype="fp32", seed=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("model") / "folder"
    made.mkdir()
    write(WANTED, made)
    return made


def test_the_tokenizer_gives_and_takes_exact_tokens(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokens = random.Random(0).choices(range(TINY.vocab_size), k=200)
    assert tokenizer(text_of(tokens))["input_ids"] == tokens
    assert tokens_of(tokenizer.decode(tokens)) == tokens
    assert len(tokenizer) == TINY.vocab_size


def test_the_weights_are_those_that_training_starts_from(folder: Path) -> None:
    config = configuration(TINY)
    expected = build(config, torch.float32, "sdpa", weights=seeded(3), device=torch.device("cpu")).state_dict()
    found = AutoModelForCausalLM.from_pretrained(folder).state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_no_token_ends_an_output_before_its_length(folder: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.generation_config.eos_token_id is None
    assert model.config.eos_token_id is None
    assert model.config.use_cache is True
    prompt = torch.tensor([[5, 699, 0]])
    output = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=40)
    assert output.shape == (1, 43)


@pytest.mark.skipif(find_spec("gguf") is None, reason="needs gguf: pip install '.[llama-cpp]'")
@pytest.mark.parametrize("tied", [False, True])
def test_the_end_of_a_gguf_file_is_a_token_that_the_model_has_not(tmp_path: Path, tied: bool) -> None:
    """Any token that llama.cpp takes for the end is one that it never generates."""
    from gguf import GGUFReader

    model = TINY.model_copy(update={"tie_embeddings": tied})
    write(FolderRequest(model=model, dtype="fp32", seed=3, weights="gguf"), tmp_path)
    found = GGUFReader(tmp_path / "model.gguf")
    tensors = {tensor.name: torch.from_numpy(tensor.data.copy()) for tensor in found.tensors}
    assert found.get_field("tokenizer.ggml.eos_token_id").contents() == TINY.vocab_size
    assert len(found.get_field("tokenizer.ggml.tokens").data) == TINY.vocab_size + 1
    assert ("output.weight" in tensors) is not tied
    for name in {"token_embd.weight", "output.weight"} & tensors.keys():
        assert tensors[name].shape == (TINY.vocab_size + 1, TINY.hidden_size)
        assert not tensors[name][-1].any()
    assert len(tensors) == 2 + (not tied) + 9 * TINY.num_layers


def test_a_folder_is_made_once_and_found_again(tmp_path: Path) -> None:
    model = TINY.model_copy(update={"rope_theta": 20000.0})
    wanted = FolderRequest(model=model, dtype="bf16", seed=0, weights="none")
    folder = ensure_model_folder(wanted, tmp_path)
    assert {path.name for path in folder.iterdir()} == {
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert json.loads((folder / "config.json").read_text())["dtype"] == "bfloat16"
    assert json.loads((folder / "config.json").read_text())["architectures"] == ["LlamaForCausalLM"]
    older = json.loads((folder / "config.json").read_text())
    assert (older["rope_theta"], older["torch_dtype"]) == (20000.0, "bfloat16"), "as transformers 4 reads them"
    assert json.loads((folder / "tokenizer_config.json").read_text())["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert AutoTokenizer.from_pretrained(folder)(text_of([5, 6]))["input_ids"] == [5, 6]
    assert AutoConfig.from_pretrained(folder).rope_parameters["rope_theta"] == 20000.0
    (folder / "left").touch()
    assert ensure_model_folder(wanted, tmp_path) == folder
    assert (folder / "left").exists()
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize(
    "other",
    [
        {"model": TINY.model_copy(update={"num_layers": 3})},
        {"dtype": "bf16"},
        {"seed": 4},
        {"weights": "none"},
    ],
)
def test_another_shape_dtype_seed_or_kind_is_another_folder(other: dict[str, object]) -> None:
    assert WANTED.model_copy(update=other).name != WANTED.name


def test_what_does_not_change_the_files_does_not_change_the_folder() -> None:
    same = TINY.model_copy(update={"source": "elsewhere"})
    assert WANTED.model_copy(update={"model": same}).name == WANTED.name


def test_a_folder_that_cannot_be_made_is_told_in_one_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_folder, "WRITER", "llmexp.nowhere")
    with pytest.raises(BuildError, match=r"for model=small: .* No module named llmexp.nowhere$"):
        ensure_model_folder(WANTED, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_vocabulary_of_more_words_than_there_are_is_refused(tmp_path: Path) -> None:
    too_large = TINY.model_copy(update={"vocab_size": 26**4 + 1})
    with pytest.raises(ConfigError, match=r"model.vocab_size=456977: the tokenizer"):
        write(FolderRequest(model=too_large, dtype="fp32", seed=0, weights="none"), tmp_path)


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")
def test_adapters_change_what_a_model_computes_each_in_its_own_way(folder: Path, tmp_path: Path) -> None:
    from peft import PeftModel

    adapters = ServedAdapters(number=2, rank=4)
    write(WANTED.of_adapters(adapters), tmp_path)
    ids = torch.tensor([[5, 9, 600]])
    logits = [AutoModelForCausalLM.from_pretrained(folder)(ids).logits]
    for number in (0, 1, 0):
        model = AutoModelForCausalLM.from_pretrained(folder)
        logits.append(PeftModel.from_pretrained(model, tmp_path / str(number))(ids).logits)
    plain, first, second, again = logits
    assert torch.equal(first, again)
    for one, other in ((plain, first), (plain, second), (first, second)):
        assert not torch.allclose(one, other, atol=1e-3)


def test_adapters_are_found_again_whatever_server_reads_the_model(tmp_path: Path) -> None:
    one, other = ServedAdapters(number=1), ServedAdapters(number=1, rank=2)
    folders = {WANTED.model_copy(update={"weights": kind}).of_adapters(one).name for kind in ("safetensors", "none")}
    assert len(folders) == 1
    assert folders.isdisjoint({WANTED.of_adapters(other).name, WANTED.name})
