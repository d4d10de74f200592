"""Families with layers that keep a state, by transformers' modules of the same names."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from llmexp.inputs.architecture.families.dense import attention, head_norms, mlp
from llmexp.inputs.architecture.families.sparse import COUNT, experts, sparse_layers
from llmexp.inputs.architecture.fields import Fields, UncountedError
from llmexp.inputs.architecture.mixers import GatedDeltaNet, Mamba, Mamba2
from llmexp.inputs.architecture.model import Architecture, Layer


def qwen3_next(fields: Fields) -> Architecture:
    """Read Qwen3-Next: gated attention in every fourth layer, gated delta nets in the others, and experts."""
    every = fields.size("full_attention_interval", default=4)
    otherwise = ["linear_attention" if (layer + 1) % every else "full_attention" for layer in fields.layers]
    kinds = fields.kinds(("full_attention", "linear_attention"), otherwise)
    linear = GatedDeltaNet(
        hidden=fields.size("hidden_size"),
        key_heads=fields.size("linear_num_key_heads"),
        value_heads=fields.size("linear_num_value_heads"),
        key_dim=fields.size("linear_key_head_dim"),
        value_dim=fields.size("linear_value_head_dim"),
        kernel=fields.size("linear_conv_kernel_dim", default=4),
    )
    mixer = attention(fields, bias=fields.flag("attention_bias"), head_dim=256)
    full = head_norms(replace(mixer, gated=True))
    shared = mlp(fields, "shared_expert_intermediate_size")
    sparse = replace(experts(fields, "moe_intermediate_size", shared), shared_gate=True)
    mixers = [linear if kind == "linear_attention" else full for kind in kinds]
    return fields.decoder(
        [
            Layer(mixer, sparse if has_experts else mlp(fields), 2 * full.hidden)
            for mixer, has_experts in zip(mixers, sparse_layers(fields), strict=True)
        ]
    )


def mamba2(fields: Fields) -> Architecture:
    """Read Mamba-2: a layer is the mixer alone."""
    hidden, heads, head_dim = fields.size("hidden_size"), fields.size("num_heads"), fields.size("head_dim")
    expand = fields.size("expand", default=2)
    if heads * head_dim != expand * hidden:
        raise UncountedError(
            f"config.json: num_heads={heads} x head_dim={head_dim} is not expand={expand} x hidden_size={hidden}"
        )
    mixer = Mamba2(
        hidden=hidden,
        heads=heads,
        head_dim=head_dim,
        state=fields.size("state_size"),
        groups=fields.size("n_groups", default=8),
        kernel=fields.size("conv_kernel", default=4),
        bias=fields.flag("use_bias"),
        conv_bias=fields.flag("use_conv_bias", True),
        chunk=fields.size("chunk_size", default=256),
        residual_in_fp32=fields.flag("residual_in_fp32", True),
    )
    return fields.decoder([Layer(mixer, None, hidden)] * len(fields.layers))


def jamba(fields: Fields) -> Architecture:
    """Read Jamba: one layer of attention among several of Mamba, and experts in every other layer."""
    hidden, rank = fields.size("hidden_size"), fields.values.get("mamba_dt_rank", "auto")
    mamba = Mamba(
        hidden=hidden,
        inner=fields.size("mamba_expand", default=2) * hidden,
        state=fields.size("mamba_d_state", default=16),
        step_rank=ceil(hidden / 16) if rank == "auto" else fields.size("mamba_dt_rank"),
        kernel=fields.size("mamba_d_conv", default=4),
        bias=fields.flag("mamba_proj_bias"),
        conv_bias=fields.flag("mamba_conv_bias", True),
    )
    full, dense = attention(fields), mlp(fields)
    # transformers builds one expert as an MLP without a router.
    sparse = experts(fields, "intermediate_size") if fields.size(*COUNT) > 1 else dense
    attends, routes = _every(fields, "attn_layer", 8, 4), _every(fields, "expert_layer", 2, 1)
    return fields.decoder(
        [
            Layer(full if attends[layer] else mamba, sparse if routes[layer] else dense, 2 * hidden)
            for layer in fields.layers
        ]
    )


def _every(fields: Fields, name: str, period: int, offset: int) -> list[bool]:
    each, first = fields.size(f"{name}_period", default=period), fields.index(f"{name}_offset", offset)
    if first >= each:
        raise UncountedError(f"config.json: {name}_offset={first} is not below {name}_period={each}")
    return [layer % each == first for layer in fields.layers]
