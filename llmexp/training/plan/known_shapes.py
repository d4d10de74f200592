"""Names that a hub's models have, and the option of `model` that has the same shape without a download."""

from __future__ import annotations

import re

_OPTIONS = {
    "llama-2-7b": "7b",
    "llama-2-13b": "13b",
    "llama-2-70b": "70b",
    "tinyllama-1.1b": "1b",
    "llama-3-8b": "llama3-8b",
    "llama-3.1-8b": "llama3-8b",
    "llama-30b": "llama-30b",
    "llama-3-70b": "llama3-70b",
    "llama-3.1-70b": "llama3-70b",
    "llama-3.3-70b": "llama3-70b",
    "qwen3-8b": "qwen3-8b",
    "qwen3-30b-a3b": "qwen3-30b-a3b",
    "qwen3-next-80b-a3b": "qwen3-next-80b-a3b",
    "moonlight-16b-a3b": "moonlight-16b-a3b",
    "gpt-oss-20b": "gpt-oss-20b",
    "gemma-3-1b": "gemma3-1b",
    "olmo-3-7b": "olmo3-7b",
    "olmo-3-1025-7b": "olmo3-7b",
    "mamba2-2.7b": "mamba2-2.7b",
    "mixtral-8x7b": "mixtral",
}


def option_like(path: str) -> str | None:
    """Return the option of `model` whose shape a checkpoint of this folder or hub name has by its name."""
    name = path.rstrip("/").rpartition("/")[2].lower()
    return next((option for known, option in _OPTIONS.items() if re.search(rf"\b{re.escape(known)}(?!\w)", name)), None)
