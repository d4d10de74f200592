"""What kind of work a kernel or an operator does, by its name."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from llmexp.record.ranges import ALL_GATHER, ALL_REDUCE
from llmexp.traces.times import Numbers

COMPUTE, COMMUNICATION, COPY = 0, 1, 2
"""The classes of work; where they overlap, the time counts as the first one's. A copy within a device's memory keeps it
as busy as a kernel that moves data, and is COMPUTE as that is; COPY goes between host and device, or two devices."""

GEMM, ATTENTION, COLLECTIVE, COPYING = "GEMM", "attention", "communication", "copy"
OTHER = "other"
# The first pattern that is found in a name decides.
PATTERNS: tuple[tuple[str, str], ...] = (
    (COLLECTIVE, r"nccl|rccl|msccl|nvshmem|deep_?ep|^gloo:|^c10d::|all_?reduce_|multimem_|one_shot|two_shot"),
    (COLLECTIVE, r"cross_device_reduce"),
    (COPYING, r"^Memcpy|^CopyHostToDevice|^CopyDeviceTo|^Copy[HD]|__amd_rocclr_copyBuffer"),
    ("fill", r"^Memset|__amd_rocclr_fillBuffer|FillFunctor|^aten::(fill_|zero_|zeros)"),
    (ATTENTION, r"flash|fmha|attn_fwd|attn_bwd|scaled_dot_product|mem_efficient|efficient_attention|_attention"),
    (GEMM, r"gemm|gemv|cutlass.*(tensorop|wgmma|sm\d\d)|cublas|nvjet|Cijk_|wgmma|_mm_|xmma|splitKreduce|_mm$"),
    (GEMM, r"^aten::(mm|bmm|addmm|baddbmm|linear|matmul|mv|addmv|einsum)\b|mkldnn_linear|mkldnn::_linear"),
    (GEMM, r"triton_tem\w*mm"),
    ("convolution", r"conv(?!ert)|im2col|winograd"),
    ("softmax", r"softmax|nll_loss|cross_entropy"),
    ("normalisation", r"norm"),
    ("optimizer", r"multi_tensor|adam|\blamb\b|sgd|_foreach_"),
    ("embedding", r"embedding|index|gather|scatter"),
    ("elementwise", r"elementwise|triton_poi|vectorized|^aten::(add|mul|sub|div|neg|pow|rsqrt|exp|cos|sin|where)"),
    ("elementwise", r"^aten::(silu|gelu|sigmoid|tanh|masked_fill|copysign|addcmul|addcdiv)"),
    ("reduction", r"reduce|triton_(red|per)|^aten::(sum|mean|max|min|amax|argmax)"),
    ("data movement", r"cat|transpose|permute|copy|repeat|roll|^aten::(stack|clone|contiguous|slice|expand)"),
)
COLLECTIVES = (
    (ALL_REDUCE, re.compile("all_?reduce|cross_device_reduce|one_shot|two_shot|multimem_", re.IGNORECASE)),
    (ALL_GATHER, re.compile("all_?gather", re.IGNORECASE)),
)
# Within the memory of one device; ROCm's is a kernel. Memcpy PtoP is between two devices.
_ON_DEVICE = re.compile(r"^Memcpy (DtoD|DtoA|AtoD|AtoA)|^CopyDeviceToDevice|^CopyDtoD|__amd_rocclr_copyBuffer")
_COMPILED = tuple((kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in PATTERNS)


def kind_of(name: str) -> str:
    """Return the kind of work of a kernel or operator."""
    return next((kind for kind, pattern in _COMPILED if pattern.search(name)), OTHER)


def collective_of(name: str) -> str:
    """Return which collective a kernel or operator of communication is, by its name."""
    return next((kind for kind, pattern in COLLECTIVES if pattern.search(name)), OTHER)


def classes(names: Sequence[str]) -> Numbers:
    """Return COMPUTE, COMMUNICATION or COPY for each name."""
    of_kind = {COLLECTIVE: COMMUNICATION, COPYING: COPY}
    return np.array(
        [COMPUTE if _ON_DEVICE.search(name) else of_kind.get(kind_of(name), COMPUTE) for name in names], np.int8
    )
