"""Reads what a server holds: from its own words where it tells, else from the tensors of the folder that it read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from llmexp.serving.plan.reported_memory import ComputedBytes, ReportedMemory, ReportedNumber
from llmexp.serving.record.summary import ReportedBytes

FOLDER = "the tensors of the model's folder"
# Of a safetensors file: so many bytes say how long its header is, which is JSON.
_LENGTH_BYTES = 8


def held(plan: ReportedMemory, texts: Mapping[str, str], folder: Path | None) -> ReportedBytes:
    """Return what a server holds, by the texts of its page and its log and by its folder."""
    weights, weights_from = _first(plan.weights_told, texts, plan.weights)
    if weights is None and folder and plan.folder_copies:
        stored = tensor_bytes(folder)
        weights, weights_from = (stored * plan.folder_copies, FOLDER) if stored else (None, "")
    tokens, tokens_from = _first(plan.kv_tokens_told, texts, plan.kv_tokens)
    each = plan.kv_bytes_per_token
    return ReportedBytes(
        weights_bytes=weights,
        weights_from=weights_from,
        kv_cache_tokens=tokens,
        kv_cache_bytes=None if tokens is None or each is None else tokens * each,
        kv_cache_from=tokens_from,
    )


def tensor_bytes(folder: Path) -> int:
    """Return the bytes of all tensors of a folder; 0 where it has none."""
    found = sum(_safetensors_bytes(path) for path in folder.glob("*.safetensors"))
    return found + sum(_gguf_bytes(path) for path in folder.glob("*.gguf"))


def _first(
    told: Sequence[ReportedNumber], texts: Mapping[str, str], computed: ComputedBytes | None
) -> tuple[int | None, str]:
    """Return the first number that is told, else the one that is computed, and who says so."""
    for each in told:
        number = each.number(texts.get(each.where, ""))
        if number is not None:
            return round(number), each.words
    return (computed.number, computed.words) if computed else (None, "")


def _safetensors_bytes(path: Path) -> int:
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(_LENGTH_BYTES), "little")))
    spans = (tensor["data_offsets"] for name, tensor in header.items() if name != "__metadata__")
    return sum(end - begin for begin, end in spans)


def _gguf_bytes(path: Path) -> int:
    from gguf import GGUFReader  # only llama.cpp's users have gguf

    return sum(int(tensor.n_bytes) for tensor in GGUFReader(path).tensors)
