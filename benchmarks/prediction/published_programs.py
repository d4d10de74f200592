"""What the programs of published runs did that no plan says: their engine, their kernels, and what ran beside what."""

from __future__ import annotations

import re

from benchmarks.prediction.published_rows import Row

TITAN, BY_LAYERS = "torchtitan", "recomputation by layers"
_MEGATRON, _ALEPH_ALPHA, _ONEFLOW = "megatron", "megatron-like", "megatron-oneflow"
# Their tensor parallelism is torch's, on DTensors; others have layers of their own, as Megatron has.
_WITH_DTENSOR, _ASYNCHRONOUS = ("pytorch", "torchtitan", "kempnerforge", "automodel"), "asynchronous tp"
# TransformerEngine's layers send beside products of forward too, where a program turns that on (tp_comm_overlap).
_BESIDE_PRODUCTS = "tensor communication overlapped"
# KempnerForge's matrices each gather their own input (kempnerforge/distributed/tensor_parallel.py at 0c4eba1): queries,
# keys, values, gate and up, where others gather once for attention and once for the MLP. The two scatters stay.
_EACH_GATHERS, _MORE_SENT = "kempnerforge", (5 + 2) / (2 + 2)
# Megatron-LM's tensor parallelism sends beside the gradients of weights since September 2021 (commit 16c90445e7). It
# reduces these beside backward since August 2023 (2d5220a424). Forks lag behind: BigScience's of February 2022 has
# neither. Aleph Alpha's layers send what autograd hands them, when both products are done (scaling, linear/utils.py).
_SENDS_BESIDE_SINCE, _REDUCES_BESIDE_SINCE, _REDUCES_AFTER = "2022-03", "2023-08", "communication not overlapped"
# Until pipelines moved into megatron-core (39b83c795 and 3c92fa93b, as its pull request 4140 says), each rank of tensor
# parallelism sent the next stage a part alone (arXiv 2104.04473, section 4.1). So do DeepSpeed's pipelines.
_SENDS_WHOLE_SINCE = "2023-06"
# The first FlashAttention reaches 25 to 40 % of an A100's peak (arXiv 2307.08691, abstract); this is the middle.
_ATTENTION = {"attention in Triton": 0.325}
# Without fused attention Megatron's programs still scale, mask and take the softmax of 16-bit scores in one kernel
# (Megatron-LM, megatron/fused_kernels). Bytes of a score, forward: written by the product 2, softmax 4, dropout 5 with
# its mask, read by the next product 2; backward: products 8, dropout 5, softmax 6.
_FUSED_SCORES = 13.0 + 19.0
_MOVED = re.compile(r"(0\.\d+) of the activations offloaded")
_SHARES = {"": 0.0, "none": 0.0, "full": 1.0}


def engine_of(row: Row) -> str:
    """Return the engine whose way of training is a framework's: deepspeed and megatron by name, all others torch."""
    if row.framework.startswith((_MEGATRON, "nemo")):
        return "megatron"
    return "deepspeed" if row.framework.startswith("deepspeed") else "torch"


def sends_beside(row: Row) -> bool:
    """Tell whether tensor parallelism sends beside the gradients of weights in backward."""
    if row.framework in _WITH_DTENSOR:
        return _ASYNCHRONOUS in row.note
    return not _is_megatron_before(row, _SENDS_BESIDE_SINCE)


def sends_beside_forward(row: Row) -> bool:
    """Tell whether tensor parallelism sends beside the products of forward too, in parts of a product."""
    return _BESIDE_PRODUCTS in row.note or _ASYNCHRONOUS in row.note


def tensor_sends(row: Row) -> float:
    """Return how many times as much tensor parallelism sends as that of engines here."""
    return _MORE_SENT if row.framework == _EACH_GATHERS else 1.0


def activations_moved(row: Row) -> float:
    """Return the share of the activations that move to the host, of a run that moves any."""
    found = _MOVED.search(row.note)
    return float(found[1]) if found else 1.0


def reduces_beside(row: Row) -> bool:
    """Tell whether gradients are reduced while backward computes others."""
    return _REDUCES_AFTER not in row.note and not _is_megatron_before(row, _REDUCES_BESIDE_SINCE)


def stages_send_parts(row: Row) -> bool:
    """Tell whether each rank of tensor parallelism sends the next stage a part, which its ranks gather."""
    return row.framework != _ALEPH_ALPHA and _is_megatron_before(row, _SENDS_WHOLE_SINCE)


def _is_megatron_before(row: Row, date: str) -> bool:
    old = row.date < date or row.framework == _ALEPH_ALPHA
    return row.framework.startswith(_MEGATRON) and row.framework != _ONEFLOW and old


def attention_share(row: Row) -> float | None:
    """Return the share of the peak that an attention kernel reaches which no engine has; None: it has another."""
    return next((share for said, share in _ATTENTION.items() if said in row.note), None)


def score_bytes(row: Row) -> float | None:
    """Return the bytes that forward and backward move for each score by kernels that no engine has."""
    return _FUSED_SCORES if engine_of(row) == "megatron" and row.flash == "no" else None


def recomputed_share(row: Row) -> float:
    """Return the share of a forward pass that R runs again.

    torchtitan's selective recomputation keeps all products of a layer but every second one, by its
    `activation_checkpoint.py` of 2025; these are those of keys, of attention's result and of the MLP's second matrix.
    """
    if row.recomputation != "selective":
        return _SHARES[row.recomputation] if row.recomputation in _SHARES else float(row.recomputation)
    if row.framework != TITAN:
        return 0.0
    if BY_LAYERS in row.note:
        return 0.5
    assert row.hidden
    assert row.heads
    assert row.intermediate
    queries = row.hidden * row.heads * (row.head_dim or row.hidden // row.heads)
    keys, mlp = queries * (row.kv_heads or row.heads) / row.heads, row.hidden * row.intermediate
    return (queries + keys + mlp) / (2 * queries + 2 * keys + 3 * mlp)
