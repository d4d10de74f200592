"""A compressed model as anyone would load it: from its folder, and with what it said before it was saved."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from llmexp.errors import LlmexpError

# Nats a token. The same weights in the same arithmetic gave no difference on a CPU; kernels may add in another order.
TOLERANCE = {torch.float32: 1e-4}
TOLERANCE_IN_16_BITS = 5e-3
TOKENIZER_FILES = ("tokenizer*", "special_tokens_map.json", "vocab*", "merges.txt", "*.model", "chat_template*")


class ReloadError(LlmexpError):
    """What was loaded from the compressed model's folder is not what was saved there."""


def reloaded(folder: Path, device: torch.device, *, trusts_code: bool = False) -> PreTrainedModel:
    """Load a compressed model; raise ReloadError where the folder lacks weights or has others."""
    try:
        model, told = AutoModelForCausalLM.from_pretrained(
            folder, dtype="auto", output_loading_info=True, trust_remote_code=trusts_code
        )
    except (RuntimeError, ValueError, OSError, KeyError) as error:
        raise ReloadError(f"the compressed model cannot be loaded: {_line(error)}") from error
    for kind in ("missing_keys", "mismatched_keys", "unexpected_keys"):
        if told.get(kind):
            first = sorted(map(str, told[kind]))[0]
            raise ReloadError(f"the compressed model's folder has {kind.replace('_', ' ')}, such as {first}")
    return model.to(device).eval()


def check_parity(saved: float, read: float, dtype: torch.dtype) -> None:
    """Raise ReloadError where the nll of the loaded model is not that of the saved one, in nats a token."""
    tolerance = TOLERANCE.get(dtype, TOLERANCE_IN_16_BITS)
    if not abs(saved - read) <= tolerance:
        raise ReloadError(
            f"the compressed model gave {saved:.6f} nats a token before it was saved, and {read:.6f} after it was "
            f"loaded; {tolerance:g} is allowed"
        )


def copy_tokenizer(source: Path, folder: Path) -> None:
    """Copy the tokenizer's files, so that programs that serve a folder find them."""
    for pattern in TOKENIZER_FILES:
        for path in source.glob(pattern):
            if path.is_file():
                shutil.copyfile(path, folder / path.name)


def safetensors_bytes(folder: Path) -> int:
    """Return the size of all safetensors of a folder."""
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def _line(error: Any) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
