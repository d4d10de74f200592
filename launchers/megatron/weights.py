"""This rank's part of the weights that every engine starts from.

Weights are made whole under transformers' names, then cut into Megatron's layout.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import torch
from megatron.core import parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.tensor_parallel import set_tensor_model_parallel_attributes
from torch import nn

from llmexp.launchers.models.seeding import fill
from llmexp.schema import SizedModel

# Megatron's name of a parameter of a decoder layer or a stage
# maps to transformers' name and the dimension that tensor parallelism cuts.
_PLAIN: dict[str, tuple[str, int | None]] = {
    "embedding.word_embeddings.weight": ("model.embed_tokens.weight", 0),
    "output_layer.weight": ("lm_head.weight", 0),
    "decoder.final_layernorm.weight": ("model.norm.weight", None),
    "input_layernorm.weight": ("input_layernorm.weight", None),
    "pre_mlp_layernorm.weight": ("post_attention_layernorm.weight", None),
    "self_attention.q_layernorm.weight": ("self_attn.q_norm.weight", None),
    "self_attention.k_layernorm.weight": ("self_attn.k_norm.weight", None),
    "self_attention.linear_proj.weight": ("self_attn.o_proj.weight", 1),
    "mlp.linear_fc2.weight": ("mlp.down_proj.weight", 1),
    "mlp.router.weight": ("mlp.gate.weight", None),
    "mlp.experts.linear_fc2.weight": ("mlp.experts.down_proj", 1),
}
_LAYER = re.compile(r"decoder\.layers\.(\d+)\.(.+)")
_EXPERT = re.compile(r"mlp\.experts\.local_experts\.(\d+)\.(.+)")

WholeTensor = Callable[[str, int, int], torch.Tensor]


def fill_stage(stage: GPTModel, model: SizedModel, seed: int) -> None:
    """Give every parameter of one pipeline stage its seeded values, and mark those that are parts of a matrix."""
    for name, parameter in stage.named_parameters():
        if model.tie_embeddings and name == "output_layer.weight":
            name = "embedding.word_embeddings.weight"
        _fill(_global(stage, name), parameter, model, seed)


def _global(stage: GPTModel, name: str) -> str:
    """Return the name with the numbers of layer and expert in the whole model.

    A stage counts both from 0, Megatron's layer_number counts from 1.
    """
    found = _LAYER.match(name)
    if not found:
        return name
    layer, part = stage.decoder.layers[int(found[1])], found[2]
    if expert := _EXPERT.match(part):
        part = f"mlp.experts.local_experts.{layer.mlp.local_expert_indices[int(expert[1])]}.{expert[2]}"
    return f"decoder.layers.{layer.layer_number - 1}.{part}"


def _place(name: str) -> tuple[str, str, str]:
    """Split a global name into three parts.

    They are transformers' prefix of the layer, Megatron's name within it, and an expert's suffix for its seed.
    """
    found = _LAYER.match(name)
    prefix, part = (f"model.layers.{found[1]}.", found[2]) if found else ("", name)
    expert = _EXPERT.match(part)
    return (prefix, f"mlp.experts.{expert[2]}", f".{expert[1]}") if expert else (prefix, part, "")


def _fill(name: str, parameter: nn.Parameter, model: SizedModel, seed: int) -> None:
    prefix, part, suffix = _place(name)
    tp, rank = _tensor_part(of_expert=bool(suffix))

    def whole(leaf: str, *shape: int) -> torch.Tensor:
        values = torch.empty(shape, dtype=parameter.dtype, device=parameter.device)
        fill(prefix + leaf + suffix, values, seed)
        return values

    with torch.no_grad():
        if part in _PLAIN:
            leaf, cut = _PLAIN[part]
            shape = [size * (tp if dimension == cut else 1) for dimension, size in enumerate(parameter.shape)]
            values = whole(leaf, *shape)
            parameter.copy_(values if cut is None else values.chunk(tp, cut)[rank])
        else:
            cut = 0
            parameter.copy_(_JOINED[part](whole, model, rank, tp))
    if cut is not None:
        set_tensor_model_parallel_attributes(parameter, True, cut, 1)


def _tensor_part(*, of_expert: bool) -> tuple[int, int]:
    """Return the number of ranks that matrices are cut over, and this rank's place among them."""
    state = parallel_state
    if of_expert:
        return state.get_expert_tensor_parallel_world_size(), state.get_expert_tensor_parallel_rank()
    return state.get_tensor_model_parallel_world_size(), state.get_tensor_model_parallel_rank()


def _query_key_value(whole: WholeTensor, model: SizedModel, rank: int, tp: int) -> torch.Tensor:
    """Return this rank's rows, grouped by key and value head: a group's queries, its key, its value."""
    groups, width = model.num_kv_heads, model.head_dim
    rows = {"q": model.num_heads * width, "k": groups * width, "v": groups * width}
    parts = [
        whole(f"self_attn.{leaf}_proj.weight", size, model.hidden_size).unflatten(0, (groups, -1))
        for leaf, size in rows.items()
    ]
    return torch.cat(parts, dim=1).chunk(tp)[rank].flatten(0, 1)


def _gate_up(whole: WholeTensor, model: SizedModel, rank: int, tp: int) -> torch.Tensor:
    """Return this rank's rows of the gate, then its rows of the up projection."""
    shape = (model.intermediate_size, model.hidden_size)
    return torch.cat([whole(f"mlp.{leaf}_proj.weight", *shape).chunk(tp)[rank] for leaf in ("gate", "up")])


def _stacked_gate_up(whole: WholeTensor, model: SizedModel, rank: int, tp: int) -> torch.Tensor:
    """Return this rank's rows for one expert, whose gate and up projection are one matrix."""
    joined = whole("mlp.experts.gate_up_proj", 2 * model.intermediate_size, model.hidden_size)
    return torch.cat([half.chunk(tp)[rank] for half in joined.chunk(2)])


_JOINED = {
    "self_attention.linear_qkv.weight": _query_key_value,
    "mlp.linear_fc1.weight": _gate_up,
    "mlp.experts.linear_fc1.weight": _stacked_gate_up,
}
