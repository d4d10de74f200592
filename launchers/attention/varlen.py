"""Causal attention within each of several records in one sequence, by torch's flash kernels alone."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from llmexp.errors import ConfigError
from llmexp.launchers.attention.causal import flash
from llmexp.launchers.data.packing import LENGTHS


def sdpa_records(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: None, **options: Any
) -> tuple[Tensor, None]:
    """Compute attention with the signature of transformers and the arguments that packing.model_inputs adds.

    Inputs are [batch, heads, seq, head_dim], the result is [batch, seq, heads, head_dim].
    """
    return within_records(_varying(query.device) or _one_by_one, module, (query, key, value), options), None


def within_records(
    attend: Callable[..., Tensor],
    module: torch.nn.Module,
    parts: tuple[Tensor, Tensor, Tensor],
    options: dict[str, Any],
) -> Tensor:
    """Call a function for all records together, of [tokens, heads, head_dim]; the result is that of `sdpa_records`.

    Raises ConfigError for a model that does not hand on where records end.
    """
    if LENGTHS not in options:
        raise ConfigError(
            f"data.pack=true: {type(module).__module__} does not pass on where records end: set data.pack=false, or "
            f"leave F out"
        )
    batch, _, seq_len, _ = parts[0].shape
    joined = (part.transpose(1, 2).flatten(0, 1) for part in parts)
    return attend(*joined, options=options).unflatten(0, (batch, seq_len))


def _one_by_one(query: Tensor, key: Tensor, value: Tensor, *, options: dict[str, Any]) -> Tensor:
    """Call the flash kernel once a record; all tensors are [tokens, heads, head_dim]."""
    lengths: Sequence[int] = options[LENGTHS]
    each = zip(
        *(part.transpose(0, 1).unsqueeze(0).split(list(lengths), dim=2) for part in (query, key, value)), strict=True
    )
    return torch.cat([flash(q, k, v, options.get("scaling")).squeeze(0).transpose(0, 1) for q, k, v in each])


@cache
def _varying(device: torch.device) -> Callable[..., Tensor] | None:
    """Return torch's flash kernel for records of varying lengths, which takes all records in one call.

    Returns None without CUDA, and where torch's function is not causal. Keys and values of grouped heads are repeated
    where it does not take them as they are (torch 2.11).
    """
    if device.type != "cuda":
        return None
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    known = inspect.signature(varlen_attn).parameters.keys()
    if not {"window_size", "scale"} <= known:
        return None

    def within(query: Tensor, key: Tensor, value: Tensor, *, options: dict[str, Any]) -> Tensor:
        bounds, longest = options["cu_seq_lens_q"], options["max_length_q"]
        causal: dict[str, Any] = {"window_size": (-1, 0), "scale": options.get("scaling")}
        if "enable_gqa" in known:
            causal["enable_gqa"] = key.shape[1] != query.shape[1]
        else:
            key, value = (part.repeat_interleave(query.shape[1] // part.shape[1], dim=1) for part in (key, value))
        found: Any = varlen_attn(query, key, value, bounds, bounds, longest, longest, **causal)
        return found

    return within
