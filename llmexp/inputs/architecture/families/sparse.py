"""Families with experts, by transformers' modules of the same names."""

from __future__ import annotations

from dataclasses import replace

from llmexp.inputs.architecture.families.dense import attention, head_norms, mlp, windowed
from llmexp.inputs.architecture.fields import Fields, UncountedError
from llmexp.inputs.architecture.mixers import LatentAttention
from llmexp.inputs.architecture.model import Architecture, Layer
from llmexp.inputs.architecture.parts import FULL, Experts, Mixer, Mlp, Part, Reach

COUNT = ("num_local_experts", "num_experts", "n_routed_experts")


def experts(fields: Fields, width: str, shared: Mlp | None = None, *, bias: bool = False) -> Experts:
    """Return routed experts of that width; with `bias`, they and the router have biases."""
    count, top_k = fields.size(*COUNT), fields.size("num_experts_per_tok")
    if top_k > count:
        raise UncountedError(f"config.json: num_experts_per_tok={top_k} of {count} experts")
    expert = mlp(fields, width, bias=bias)
    return Experts(expert.hidden, expert, count, top_k, shared, router_bias=bias)


def shared_expert(fields: Fields) -> Mlp:
    """Return the shared experts of DeepSeek and GLM, which are one MLP as wide as all of them."""
    width = fields.size("moe_intermediate_size") * fields.size("n_shared_experts")
    return Mlp(fields.size("hidden_size"), width)


def sparse_layers(fields: Fields) -> list[bool]:
    """Tell of each layer of a Qwen model whether it has experts."""
    dense, step = fields.indices("mlp_only_layers"), fields.size("decoder_sparse_step", default=1)
    return [layer not in dense and (layer + 1) % step == 0 for layer in fields.layers]


def mixtral(fields: Fields) -> Architecture:
    """Read Mixtral."""
    mixer = attention(fields, within=windowed(fields, None))
    return _mixed(fields, mixer, experts(fields, "intermediate_size"), [True] * len(fields.layers))


def qwen3_moe(fields: Fields) -> Architecture:
    """Read Qwen3 with experts."""
    reach = windowed(fields, 4096) if fields.flag("use_sliding_window") else FULL
    mixer = head_norms(attention(fields, bias=fields.flag("attention_bias"), within=reach))
    return _mixed(fields, mixer, experts(fields, "moe_intermediate_size"), sparse_layers(fields))


def gpt_oss(fields: Fields) -> Architecture:
    """Read gpt-oss: sinks, biases of experts and router, and a window in every other layer."""
    otherwise = ["full_attention" if layer % 2 else "sliding_attention" for layer in fields.layers]
    mixer = replace(attention(fields, bias=fields.flag("attention_bias", True), head_dim=64), sinks=True)
    feed_forward = experts(fields, "intermediate_size", bias=True)
    reaches = fields.reaches(fields.window(128), otherwise)
    return fields.decoder([Layer(replace(mixer, within=within), feed_forward, 2 * mixer.hidden) for within in reaches])


def deepseek_v3(fields: Fields) -> Architecture:
    """Read DeepSeek-V3 and R1 without the layers that predict a second token, which transformers does not build."""
    mixer = LatentAttention(
        hidden=fields.size("hidden_size"),
        heads=fields.size("num_attention_heads"),
        query_rank=fields.size("q_lora_rank", default=1536) if fields.values.get("q_lora_rank", 1536) else None,
        kv_rank=fields.size("kv_lora_rank"),
        plain_dim=fields.size("qk_nope_head_dim"),
        rotary_dim=fields.size("qk_rope_head_dim"),
        value_dim=fields.size("v_head_dim"),
        bias=fields.flag("attention_bias"),
    )
    return _after_dense(fields, mixer, default=3)


def glm4_moe(fields: Fields) -> Architecture:
    """Read GLM-4.5 and 4.6: biases of queries, keys and values, and norms of queries and keys by choice."""
    mixer = replace(attention(fields), qkv_bias=fields.flag("attention_bias"))
    return _after_dense(fields, head_norms(mixer) if fields.flag("use_qk_norm") else mixer, default=1)


def llama4(fields: Fields) -> Architecture:
    """Read Llama 4's text model: chunks in layers with rotary positions, and a shared expert."""
    every, step = fields.size("no_rope_layer_interval", default=4), fields.size("interleave_moe_layer_step", default=1)
    rotary = fields.indices("no_rope_layers") or [int((layer + 1) % every != 0) for layer in fields.layers]
    kinds = fields.kinds(
        ("chunked_attention", "full_attention"),
        ["chunked_attention" if turned else "full_attention" for turned in rotary[: len(fields.layers)]],
    )
    chunk = Reach("chunked", fields.size("attention_chunk_size", default=8192))
    given = fields.values.get("moe_layers") is not None
    sparse = fields.indices("moe_layers") if given else range(step - 1, len(fields.layers), step)
    feed_forward = experts(fields, "intermediate_size", mlp(fields))
    full = attention(fields, bias=fields.flag("attention_bias"), head_dim=128)
    mixers = [replace(full, within=chunk) if kind == "chunked_attention" else full for kind in kinds]
    dense = mlp(fields, "intermediate_size_mlp")
    return fields.decoder(
        [
            Layer(mixer, feed_forward if layer in sparse else dense, 2 * mixer.hidden)
            for layer, mixer in enumerate(mixers)
        ]
    )


def _after_dense(fields: Fields, mixer: Mixer, default: int) -> Architecture:
    """Return a model whose first layers have MLPs, and the others experts with a shared one."""
    first = fields.index("first_k_dense_replace", default)
    feed_forward = experts(fields, "moe_intermediate_size", shared_expert(fields))
    return _mixed(fields, mixer, feed_forward, [layer >= first for layer in fields.layers])


def _mixed(fields: Fields, mixer: Mixer, sparse: Part, which: list[bool]) -> Architecture:
    gains = 2 * fields.size("hidden_size")
    return fields.decoder([Layer(mixer, sparse if has_experts else mlp(fields), gains) for has_experts in which])
