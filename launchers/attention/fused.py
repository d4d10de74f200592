"""Which of a GPU's fused kernels computes the attention of atom F, by kernels.flash.

Torch's own kernels are called with the function of causal.py, and the flash-attn package by its own functions:
transformers' way to it asks the GPU in every layer whether a single sequence is several packed ones.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend

from llmexp.errors import ConfigError
from llmexp.launchers.attention.causal import TILE, cudnn_is_safe, flash
from llmexp.launchers.attention.varlen import sdpa_records, within_records

Kernel = Literal["auto", "fa2", "cudnn", "fa3", "fa4"]
Attention = Callable[..., tuple[Tensor, None]]


def attention_of(kernel: Kernel, device: torch.device, *, records: bool = False) -> tuple[str, Attention]:
    """Return the attention function of F, and the name by which transformers is to know it.

    With `records` each record of a sequence is attended to by itself. Raises ConfigError where the kernel is not there.
    """
    if kernel in ("fa3", "fa4"):
        _activate(kernel)
    if kernel == "fa2" and device.type == "cuda" and has_package():
        return ("llmexp_package_records", package_records) if records else ("llmexp_package", package)
    if records:
        return "llmexp_sdpa_records", sdpa_records
    # A name must not contain "flash": transformers would look for a package of that name.
    return {"auto": ("llmexp_sdpa", sdpa_fused), "cudnn": ("llmexp_sdpa_cudnn", sdpa_cudnn)}.get(
        kernel, ("llmexp_sdpa_fa", sdpa_flash)
    )


def sdpa_of(kernel: str) -> tuple[Callable[..., Tensor], str]:
    """Return the causal attention of one kernel of kernels.flash, with causal.flash's arguments, and what runs.

    Raises ConfigError where the kernel is not there.
    """
    if kernel in ("fa3", "fa4"):
        _activate(kernel)
    if kernel == "cudnn":
        return partial(flash, kernels=(SDPBackend.CUDNN_ATTENTION,)), "cuDNN's attention"
    if kernel == "fa2" and has_package():
        return _package_by_heads, "flash_attn_func"
    return partial(flash, kernels=(SDPBackend.FLASH_ATTENTION,)), f"torch's flash attention ({kernel})"


def has_package() -> bool:
    """Tell whether flash-attn is installed; flash-attn-4 by itself has a folder of that name without it."""
    found = importlib.util.find_spec("flash_attn")
    return found is not None and found.origin is not None


def restore() -> None:
    """Let torch's flash attention be its own again."""
    active = getattr(torch.nn.attention, "current_flash_attention_impl", lambda: None)
    if active() is not None:
        torch.nn.attention.restore_flash_attention_impl()


def _package_by_heads(query: Tensor, key: Tensor, value: Tensor, scale: float | None = None) -> Tensor:
    from flash_attn import flash_attn_func

    found = flash_attn_func(*(part.transpose(1, 2) for part in (query, key, value)), causal=True, softmax_scale=scale)
    result: Tensor = found.transpose(1, 2)
    return result


def _activate(kernel: str) -> None:
    """Let torch's flash attention be that of another package from now on; raises ConfigError where it cannot be."""
    name = kernel.upper()
    try:
        from torch.nn.attention import activate_flash_attention_impl

        activate_flash_attention_impl(name)
    except (ImportError, RuntimeError, ValueError) as error:
        raise ConfigError(f"kernels.flash={kernel}: torch {torch.__version__} has no {name} here: {error}") from error


def sdpa_fused(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: None, **options: Any
) -> tuple[Tensor, None]:
    """Call the kernel that torch prefers, as transformers calls it; the result is [batch, seq, heads, head_dim]."""
    return _by((), query, key, value, options)


def sdpa_flash(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: None, **options: Any
) -> tuple[Tensor, None]:
    """Call torch's FlashAttention in the same way."""
    return _by((SDPBackend.FLASH_ATTENTION,), query, key, value, options)


def sdpa_cudnn(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: None, **options: Any
) -> tuple[Tensor, None]:
    """Call cuDNN's attention in the same way; raises ConfigError where it is not safe."""
    if not cudnn_is_safe(query.shape[2]):
        raise ConfigError(
            f"kernels.flash=cudnn: cuDNN {torch.backends.cudnn.version()} is not safe with {query.shape[2]} positions: "
            f"take a multiple of {TILE}, kernels.flash=fa2, or cuDNN 9.15.1"
        )
    return _by((SDPBackend.CUDNN_ATTENTION,), query, key, value, options)


def package(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: None, **options: Any
) -> tuple[Tensor, None]:
    """Call the flash-attn package in the same way."""
    from flash_attn import flash_attn_func

    return flash_attn_func(*(part.transpose(1, 2) for part in (query, key, value)), **_causal(options)), None


def package_records(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: None, **options: Any
) -> tuple[Tensor, None]:
    """Call the flash-attn package for records, with the arguments that packing.model_inputs adds."""
    from flash_attn import flash_attn_varlen_func

    def within(*parts: Tensor, options: dict[str, Any]) -> Tensor:
        bounds, longest = options["cu_seq_lens_q"], options["max_length_q"]
        found: Tensor = flash_attn_varlen_func(*parts, bounds, bounds, longest, longest, **_causal(options))
        return found

    return within_records(within, module, (query, key, value), options), None


def _by(
    kernels: Sequence[SDPBackend], query: Tensor, key: Tensor, value: Tensor, options: dict[str, Any]
) -> tuple[Tensor, None]:
    return flash(query, key, value, options.get("scaling"), kernels).transpose(1, 2).contiguous(), None


def _causal(options: dict[str, Any]) -> dict[str, Any]:
    return {"causal": True, "softmax_scale": options.get("scaling")}
