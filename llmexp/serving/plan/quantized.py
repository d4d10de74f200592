"""Quantized weights of a dense model: the bytes that bitsandbytes makes, and the groups of 4-bit formats.

The matrices of its layers are quantized; the head and the rest stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil, gcd
from typing import Literal, get_args

from llmexp.inputs.shape import shape_of
from llmexp.schema import DenseModel, MixtralModel, ModelConfig
from llmexp.serving.plan.reported_memory import ComputedBytes

Int4 = Literal["gptq", "awq"]
"""The 4-bit formats in which llmexp writes weights."""
INT4: tuple[Int4, ...] = get_args(Int4)
# Inputs that share a scale, where the model's sizes allow it; servers' kernels know no smaller groups than the least.
_GROUP, LEAST_GROUP = 128, 32
# Of bitsandbytes 0.50: weights that share a scale, and such scales that share one of their own.
_BLOCK, _SCALES = 64, 256


def _nf4(inputs: int, outputs: int) -> int:
    """Return the bytes of a matrix in NF4: two weights a byte, a byte for each scale, and the scales of scales."""
    scales = ceil(inputs * outputs / _BLOCK)
    return ceil(inputs * outputs / 2) + scales + 4 * ceil(scales / _SCALES)


def _int8(inputs: int, outputs: int) -> int:
    """Return the bytes of a matrix in LLM.int8: a byte a weight, and a scale in fp32 for each row."""
    return inputs * outputs + 4 * outputs


_KINDS: Mapping[str, Callable[[int, int], int]] = {"bnb-4bit": _nf4, "bnb-8bit": _int8}


def quantized_weights(model: DenseModel | MixtralModel, kind: str, rest_bytes: int) -> ComputedBytes | None:
    """Return the bytes of a model whose other parameters have so many bytes each.

    None for another kind, and for experts, which bitsandbytes leaves as they are.
    """
    shape, of_matrix = shape_of(model), _KINDS.get(kind)
    if of_matrix is None or shape is None or shape.num_experts:
        return None
    matrices = shape.num_layers * sum(of_matrix(*sizes) for sizes in shape.matrices.values())
    rest = rest_bytes * (shape.parameters - shape.linear_parameters)
    return ComputedBytes(number=matrices + rest, words=f"the model's shape with {kind}")


def group_size(model: ModelConfig) -> int:
    """Return how many inputs of every matrix share a scale: 128, or the largest power of two that divides them all."""
    shape = shape_of(model)
    assert shape
    return gcd(_GROUP, *(inputs for inputs, _ in shape.matrices.values()))
