"""The architecture of each family against transformers itself: a model of a few layers, counted and run."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import ceil
from pathlib import Path
from typing import Any

import pytest
from tiny_architectures import BASE, TINY, configured

from llmexp.errors import ConfigError
from llmexp.inputs.architecture.mixers import GatedDeltaNet, Mamba, Mamba2
from llmexp.inputs.architecture.model import Architecture
from llmexp.inputs.architecture.parts import Mixer, Reach
from llmexp.inputs.architecture.reading import READERS, read_architecture
from llmexp.inputs.shape import shape_of
from llmexp.schema import HfModel

TOKENS = 11
# The one family whose experts all compute every token; the router's weights are 0 for those that it did not take.
COMPUTES_ALL_EXPERTS = "llama4_text"
# Of torch's chunked gated delta rule (transformers, torch_chunk_gated_delta_rule).
DELTA_CHUNK = 64


def built(config: Any, device: str) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device(device):
        return AutoModelForCausalLM.from_config(config, attn_implementation="eager", experts_implementation="eager")


def saved(config: Any, folder: Path) -> dict[str, Any]:
    """config.json as transformers writes it."""
    config.save_pretrained(folder)
    read: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return read


def test_every_family_is_tested():
    assert {case.split()[0] for case in TINY} == set(READERS)


@pytest.mark.parametrize("case", TINY)
def test_parameters_are_those_of_the_built_model(case, tmp_path: Path):
    """Active ones are counted by names: of a stack of experts those that a token is sent to, and all others."""
    config = configured(case)
    made = read_architecture(saved(config, tmp_path))
    sizes = {name: parameter.numel() for name, parameter in built(config, "meta").named_parameters()}
    routed = sum(size for name, size in sizes.items() if ".experts." in name)
    assert made.parameters == sum(sizes.values())
    idle = 0 if not routed else routed // experts_of(config) * (experts_of(config) - config.num_experts_per_tok)
    assert made.active_parameters == made.parameters - idle
    assert made.num_layers == config.num_hidden_layers


@pytest.mark.parametrize("case", TINY)
def test_forward_flops_are_those_that_torch_counts(case, tmp_path: Path):
    """Holds the products to a real forward pass: matrices, convolutions, and attention in whole squares.

    torch.utils.flop_counter counts products alone. What it counts differently stands in `torch_counts`.
    """
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    torch.set_num_threads(1)
    config = configured(case)
    made = read_architecture(saved(config, tmp_path))
    model = built(config, "cpu").eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(input_ids=torch.arange(3, 3 + TOKENS)[None], use_cache=False)
    counts = {name: sum(by.values()) for name, by in counter.get_flop_counts().items()}
    # The positions' angles are products too; they are the same for all layers, and are left out.
    angles = sum(count for name, count in counts.items() if name.endswith("rotary_emb"))
    assert counts["Global"] - angles == torch_counts(made, case, config)


def experts_of(config: Any) -> int:
    return next(getattr(config, name) for name in ("num_local_experts", "num_experts") if hasattr(config, name))


def torch_counts(made: Architecture, case: str, config: Any) -> float:
    """The FLOPs of all tokens, by the architecture, with what transformers' eager code computes instead."""
    total = TOKENS * made.forward_flops_per_position + TOKENS**2 * made.flops_per_key
    for layer, count in made.kinds.items():
        total += count * instead(layer.mixer, config)
    if case == COMPUTES_ALL_EXPERTS:
        idle = sum(count * layer.idle_parameters for layer, count in made.kinds.items())
        total += TOKENS * 2 * idle
    return total


def instead(mixer: Mixer, config: Any) -> float:
    """What torch's code for states counts more or less than a state that goes from token to token."""
    if isinstance(mixer, GatedDeltaNet):
        return (mixer.kernel - 1) * 2 * mixer.kernel * channels(mixer) + delta_chunks(mixer)
    if isinstance(mixer, Mamba2):
        return (mixer.kernel - 1) * 2 * mixer.kernel * channels(mixer) + scan_chunks(mixer, config.chunk_size)
    if isinstance(mixer, Mamba):
        # What a token adds to the state is elementwise there; only what it reads is a product.
        return (mixer.kernel - 1) * 2 * mixer.kernel * mixer.inner - TOKENS * 2 * mixer.inner * mixer.state
    return 0


def channels(mixer: GatedDeltaNet | Mamba2) -> int:
    if isinstance(mixer, GatedDeltaNet):
        return 2 * mixer.key_heads * mixer.key_dim + mixer.value_heads * mixer.value_dim
    return mixer.heads * mixer.head_dim + 2 * mixer.groups * mixer.state


def delta_chunks(mixer: GatedDeltaNet) -> float:
    """Chunks are padded; within one, tokens meet in squares. Its triangular systems are solved uncounted."""
    chunks, size = ceil(TOKENS / DELTA_CHUNK), DELTA_CHUNK
    squares = 2 * size**2 * (2 * mixer.key_dim + mixer.value_dim)
    states = 3 * 2 * size * mixer.key_dim * mixer.value_dim
    return mixer.value_heads * (chunks * (squares + states) - TOKENS * 6 * mixer.key_dim * mixer.value_dim)


def scan_chunks(mixer: Mamba2, size: int) -> float:
    """Chunks are padded; within one, tokens meet in squares, and the states of chunks meet in a square too."""
    chunks, state = ceil(TOKENS / size), mixer.head_dim * mixer.state
    squares = 2 * size**2 * (mixer.state + mixer.head_dim)
    return mixer.heads * (
        chunks * (squares + 2 * 2 * size * state) + 2 * (chunks + 1) ** 2 * state - TOKENS * 4 * state
    )


@pytest.mark.parametrize("size", [1, 4, 7, 30])
@pytest.mark.parametrize("kind", ["full", "sliding", "chunked"])
def test_keys_of_a_query_are_those_of_the_mask(kind, size):
    """By transformers' masks, half of each triangle's diagonal left out, as the causal half of a square does."""
    import torch
    from transformers import masking_utils as masks

    n = 23
    seen: dict[str, Callable[..., Any]] = {
        "full": masks.causal_mask_function,
        "sliding": masks.sliding_window_causal_mask_function(size),
        "chunked": masks.chunked_causal_mask_function(size, torch.zeros(1, dtype=torch.int)),
    }
    pairs = sum(bool(seen[kind](0, 0, torch.tensor(q), torch.tensor(k))) for q in range(n) for k in range(n))
    diagonal = min(size, n) if kind == "sliding" else n
    assert n * Reach(kind, 0 if kind == "full" else size).keys(n) == pairs - diagonal / 2


@pytest.mark.parametrize("case", ["llama", "qwen3", "mixtral", "mistral"])
def test_models_like_llama_count_as_their_shape(case, tmp_path: Path):
    """`ModelShape` has the same numbers, but for windows, which it does not know."""
    config = configured(case)
    config.architectures = [built(config, "meta").__class__.__name__]
    made = read_architecture(saved(config, tmp_path))
    shape = shape_of(HfModel(name="mine", architecture="hf", path=str(tmp_path)))
    assert shape is not None
    assert (made.parameters, made.active_parameters) == (shape.parameters, shape.active_parameters)
    assert made.flops_per_token(4) == shape.flops_per_token(4)
    assert (made.flops_per_token(40) == shape.flops_per_token(40)) is made.attends_all(40)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"model_type": "gpt2"}, "model_type=gpt2 is none of those whose layers llmexp knows: llama, mistral"),
        ({"layer_types": ["full_attention", "warp_attention"]}, "layer_types has 'warp_attention', and of olmo3"),
        ({"layer_types": ["full_attention"]}, "1 layer_types for num_hidden_layers=2"),
        ({"layer_types": ["sliding_attention"] * 2, "sliding_window": None}, "sliding_window is not set"),
        ({"hidden_size": None}, "config.json of olmo3 has no hidden_size"),
        ({"hidden_size": "wide"}, "hidden_size='wide' is no positive integer"),
        ({"attention_bias": "yes"}, "attention_bias='yes' is neither true nor false"),
    ],
)
def test_what_is_not_understood_is_said(changed, words):
    sizes = {**BASE, "model_type": "olmo3", "sliding_window": 4, **changed}
    with pytest.raises(ConfigError, match=words):
        read_architecture(sizes)


class Watched(dict[str, Any]):
    """A config.json that remembers which of its fields were asked for."""

    def __init__(self, values: dict[str, Any]) -> None:
        super().__init__(values)
        self.asked: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return super().get(key, default)


@pytest.mark.parametrize("case", TINY)
def test_a_field_that_is_left_out_is_transformers_default_or_is_said(case, tmp_path: Path):
    """Of each field by itself: transformers fills it in and saves it, and that file must read as the one without it."""
    config = configured(case)
    written = Watched(saved(config, tmp_path))
    whole, left_out = read_architecture(written), []
    # Gemma's reader asks a copy, so that all fields are tried.
    for name in sorted((written.asked & set(written) - {"model_type"}) or set(written) - {"model_type"}):
        without = {key: value for key, value in written.items() if key != name}
        try:
            made = read_architecture(without)
        except ConfigError:
            continue
        (tmp_path / "config.json").write_text(json.dumps(without))
        filled = read_architecture(saved(type(config).from_pretrained(tmp_path), tmp_path))
        left_out += [name] * (made == filled)
        assert (name, made) == (name, filled)
    assert left_out
    assert read_architecture(written) == whole
