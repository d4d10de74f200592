"""The work of a point: the FLOPs and bytes of one call, from which its rates follow.

Conventions: a product of [m, k] and [k, n] is 2 m n k FLOPs. Causal attention counts the lower half of the scores,
4 FLOPs for each score and element of a head forward, and in backward 2.5 times that by a fused kernel (it computes
the scores again, arXiv 2307.08691, section 4.1) and twice that in three steps. Bytes are those that any implementation
has to move, each input read and each output written once.
"""

from __future__ import annotations

from llmexp.micro.plan.micro_plan import ADAMW_BYTES_PER_PARAMETER, DEVICE, HOST, MicroPoint
from llmexp.schema import BYTES_PER_ELEMENT

UNFUSED_BACKWARD, FUSED_BACKWARD = 2.0, 2.5
# Of a parameter in fp32, AdamW reads value, gradient and two moments, and writes value and moments.
ADAMW_BYTES_MOVED = 7 * 4


def flops(point: MicroPoint) -> float | None:
    """Return the FLOPs of one call; None where FLOPs do not tell its speed."""
    sizes = point.sizes
    if point.family == "gemm":
        return 2.0 * sizes["m"] * sizes["n"] * sizes["k"]
    if point.family == "attention":
        kernel, _, way = point.kind.rpartition("_")
        forward = 2.0 * sizes["batch"] * sizes["heads"] * sizes["seq_len"] ** 2 * sizes["head_dim"]
        backward = UNFUSED_BACKWARD if kernel == "unfused" else FUSED_BACKWARD
        return forward * (backward if way == "backward" else 1.0)
    return None


def bytes_moved(point: MicroPoint) -> float | None:
    """Return the bytes that one call has to move; None where they do not tell its speed."""
    sizes = point.sizes
    if point.family == "memory":
        return 3.0 * sizes["bytes"]
    if point.family in ("copies", "disk"):
        return float(sizes["bytes"])
    if point.family == "optimizer":
        return float(ADAMW_BYTES_MOVED * sizes["parameters"])
    return _of_operator(point) if point.family == "operators" else None


def memory_of(family: str, kind: str) -> str:
    """Return whose memory limits a point's speed, the device's or the host's; "" where something else does."""
    if family in ("memory", "operators") or kind in ("device_to_device", "adamw_on_device"):
        return DEVICE
    return HOST if kind == "adamw_on_host" else ""


def data_bytes(point: MicroPoint) -> float | None:
    """Return the bytes of one set of a point's inputs and results; None where memory does not limit its speed."""
    if not memory_of(point.family, point.kind):
        return None
    if point.family == "optimizer":
        return float(ADAMW_BYTES_PER_PARAMETER * point.sizes["parameters"])
    moved = bytes_moved(point)
    return 2 * moved if moved and point.family == "copies" else moved


def _of_operator(point: MicroPoint) -> float:
    sizes, element = point.sizes, BYTES_PER_ELEMENT[point.dtype]
    tokens = sizes["tokens"]
    elements = {
        "rms_norm": lambda: 2 * tokens * sizes["hidden"],
        "rope": lambda: 2 * tokens * (sizes["heads"] + sizes["kv_heads"]) * sizes["head_dim"],
        "softmax": lambda: 2 * sizes["heads"] * tokens**2,
        "cross_entropy": lambda: tokens * sizes["vocab"],
    }
    return float(element * elements[point.kind]())
