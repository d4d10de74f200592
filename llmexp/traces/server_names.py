"""The names by which a server's own trace tells its steps, their phases and the parts of its model.

vLLM opens a range around each step with what is in it, as vllm/v1/worker/gpu_worker.py (0.32) has it. SGLang's steps
are calls of two functions of sglang/srt/model_executor/model_runner.py. Both have the parts of the model as calls of
modules where Python's calls are traced, and where the model is neither compiled nor replayed from a CUDA graph.
"""

from __future__ import annotations

import re

from llmexp.record import ranges

_VLLM = re.compile(r"execute_(?:\d+_)?context_\d+\((?:sq)?(\d+)[^)]*\)_generation_\d+\((?:sq)?(\d+)")
_SGLANG = re.compile(r"sglang/srt/model_executor/\w+\.py\(\d+\): forward_(extend|decode|mixed)$")
_SGLANG_PHASES = {"extend": ranges.PREFILL, "decode": ranges.DECODE, "mixed": ranges.BOTH}
_CALL = re.compile(r"nn\.Module: (\w+)_\d+$")
# A matrix that several parts of a model have: what it is, the part around it says.
ROWS = "RowParallelLinear"
INSIDE = {ranges.ATTENTION: ranges.OUTPUT, ranges.MLP: ranges.DOWN}
_MODULES = (
    (r"VocabParallelEmbedding", ranges.EMBEDDING),
    (r"\w+DecoderLayer", ranges.LAYER),
    (r"\w*(?:RMSNorm|LayerNorm)", ranges.NORM),
    (r"QKVParallelLinear", ranges.QKV),
    (r"\w*RotaryEmbedding", ranges.ROPE),
    (r"RowParallelLinear", ROWS),
    (r"MergedColumnParallelLinear", ranges.GATE_AND_UP),
    (r"\w+AndMul", ranges.ACTIVATION),
    (r"Attention|RadixAttention", ranges.CORE),
    (r"\w+Attention", ranges.ATTENTION),
    (r"\w*FusedMoE|\w+SparseMoeBlock", ranges.EXPERTS),
    (r"\w+MLP", ranges.MLP),
    (r"LogitsProcessor|ParallelLMHead", ranges.LM_HEAD),
    (r"Sampler", ranges.SAMPLING),
)
_COMPILED = tuple((re.compile(pattern), name) for pattern, name in _MODULES)


def is_followed(name: str) -> bool:
    """Tell whether a call of Python is one that a step or a module is known by."""
    return name.startswith("nn.Module: ") or bool(_SGLANG.search(name))


def phase_of(name: str) -> str | None:
    """Return the phase of the step that a range or call of this name is; empty of one without tokens, else None."""
    if found := _SGLANG.search(name):
        return _SGLANG_PHASES[found[1]]
    found = _VLLM.match(name)
    if not found:
        return None
    prompts, generated = (int(tokens) > 0 for tokens in found.groups())
    if prompts:
        return ranges.BOTH if generated else ranges.PREFILL
    return ranges.DECODE if generated else ""


def module_of(name: str) -> str | None:
    """Return our name of the part of a model that a call of Python computes; None for any other call."""
    found = _CALL.match(name)
    return next((part for kind, part in _COMPILED if kind.fullmatch(found[1])), None) if found else None
