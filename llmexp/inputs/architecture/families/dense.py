"""Families whose layers are attention and an MLP, by transformers' modules of the same names."""

from __future__ import annotations

from dataclasses import replace

from llmexp.inputs.architecture.fields import Fields, UncountedError
from llmexp.inputs.architecture.mixers import Attention
from llmexp.inputs.architecture.model import Architecture, Layer
from llmexp.inputs.architecture.parts import FULL, Mlp, Reach

# What the configuration of Gemma 3 leaves out where it equals the defaults of transformers' class.
_GEMMA3 = {
    "vocab_size": 262_208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "sliding_window": 4096,
}

# Families whose class in transformers has no number of its own for the heads of keys and values.
_ALIKE = ("llama", "phi3", "olmo2", "olmo3")


def attention(fields: Fields, *, bias: bool = False, within: Reach = FULL, head_dim: int | None = None) -> Attention:
    """Return grouped-query attention by the usual names; with `bias`, its four matrices have one.

    `head_dim` is the family's default; None: the heads share the hidden size.
    """
    hidden, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    return Attention(
        hidden=hidden,
        heads=heads,
        kv_heads=_kv_heads(fields, heads),
        head_dim=fields.size("head_dim", default=head_dim or hidden // heads),
        qkv_bias=bias,
        output_bias=bias,
        within=within,
    )


def _kv_heads(fields: Fields, heads: int) -> int:
    """Return the heads of keys and values: null is as many as queries have, and absent in some families too."""
    alike = fields.family in _ALIKE or "num_key_value_heads" in fields.values
    return fields.size("num_key_value_heads", default=heads if alike else None)


def head_norms(mixer: Attention) -> Attention:
    """Add norms of queries and keys that all heads share."""
    return replace(mixer, norm_gains=2 * mixer.head_dim)


def whole_norms(mixer: Attention) -> Attention:
    """Add norms over the queries of all heads together, and over the keys."""
    return replace(mixer, norm_gains=(mixer.heads + mixer.kv_heads) * mixer.head_dim)


def mlp(fields: Fields, width: str = "intermediate_size", *, bias: bool = False) -> Mlp:
    """Return a gated MLP of that width."""
    return Mlp(fields.size("hidden_size"), fields.size(width), bias=bias)


def windowed(fields: Fields, default: int | None) -> Reach:
    """Return the reach of all layers of a family whose `sliding_window` is for all of them."""
    window = fields.window(default)
    return Reach("sliding", window) if window else FULL


def llama(fields: Fields) -> Architecture:
    """Read Llama."""
    mixer = attention(fields, bias=fields.flag("attention_bias"))
    return _alike(fields, mixer, mlp(fields, bias=fields.flag("mlp_bias")))


def mistral(fields: Fields) -> Architecture:
    """Read Mistral, and Phi-3, whose fused matrices are as large as Llama's separate ones."""
    default = 4096 if fields.family == "mistral" else None
    return _alike(fields, attention(fields, within=windowed(fields, default)), mlp(fields))


def qwen2(fields: Fields) -> Architecture:
    """Read Qwen2 and 2.5: queries, keys and values have biases."""
    mixer = replace(attention(fields), qkv_bias=True)
    return _by_reach(fields, mixer, _qwen_reaches(fields), norms=2)


def qwen3(fields: Fields) -> Architecture:
    """Read Qwen3: heads of their own width, and norms of queries and keys."""
    mixer = attention(fields, bias=fields.flag("attention_bias"), head_dim=128)
    return _by_reach(fields, head_norms(mixer), _qwen_reaches(fields), norms=2)


def olmo(fields: Fields) -> Architecture:
    """Read OLMo 2, and OLMo 3, which has three windows for each full attention."""
    mixer = whole_norms(attention(fields, bias=fields.flag("attention_bias")))
    if fields.family == "olmo2":
        return _alike(fields, mixer, mlp(fields))
    otherwise = ["sliding_attention" if (layer + 1) % 4 else "full_attention" for layer in fields.layers]
    return _by_reach(fields, mixer, fields.reaches(fields.window(4096), otherwise), norms=2)


def gemma3(fields: Fields) -> Architecture:
    """Read Gemma 3's text model: four norms a layer, and five windows for each full attention."""
    fields = replace(fields, values={**_GEMMA3, **fields.values})
    if fields.flag("use_bidirectional_attention"):
        raise UncountedError("config.json: use_bidirectional_attention=true is attention that is not causal")
    every = fields.size("sliding_window_pattern", default=6)
    otherwise = ["sliding_attention" if (layer + 1) % every else "full_attention" for layer in fields.layers]
    mixer = head_norms(attention(fields, bias=fields.flag("attention_bias")))
    return _by_reach(fields, mixer, fields.reaches(fields.window(4096), otherwise), norms=4)


def _qwen_reaches(fields: Fields) -> list[Reach]:
    window = fields.window(4096) if fields.flag("use_sliding_window") else None
    full = fields.index("max_window_layers", 28) if window else len(fields.layers)
    otherwise = ["sliding_attention" if layer >= full else "full_attention" for layer in fields.layers]
    return fields.reaches(window, otherwise)


def _alike(fields: Fields, mixer: Attention, feed_forward: Mlp) -> Architecture:
    layer = Layer(mixer, feed_forward, norm_gains=2 * mixer.hidden)
    return fields.decoder([layer] * len(fields.layers))


def _by_reach(fields: Fields, mixer: Attention, reaches: list[Reach], norms: int) -> Architecture:
    feed_forward, gains = mlp(fields), norms * mixer.hidden
    layers = [Layer(replace(mixer, within=within), feed_forward, gains) for within in reaches]
    return fields.decoder(layers, tied=fields.family == "gemma3_text")
