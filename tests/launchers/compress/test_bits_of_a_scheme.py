"""Bits of a weight by arithmetic from the scheme."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn

from llmexp.compress.config import Quantize, Sparsify
from llmexp.launchers.compress.bits import bits_of, parameters_of, sparsity_of


@pytest.mark.parametrize(
    ("keys", "bits"),
    [
        ({"weights": "int4", "group_size": 32}, 4 + 16 / 32),
        ({"weights": "int4", "group_size": 128, "symmetric": False, "activations": "int8"}, 4 + (16 + 4) / 128),
        ({"weights": "int3", "group_size": 128}, 3 + 16 / 128),
        ({"method": "hqq", "weights": "int2", "group_size": 16, "symmetric": False}, 2 + (16 + 16) / 16),
        ({"weights": "int8", "activations": "int8"}, 8 + 16 / 256),
        ({"weights": "fp8", "activations": "fp8"}, 8 + 16 / 256),
        ({"weights": "fp8", "activations": "fp8_static"}, 8 + 16 / (64 * 256)),
        ({"weights": "mxfp4"}, 4 + 8 / 32),
        ({"weights": "nvfp4"}, 4 + 8 / 16),
    ],
)
def test_scales_and_zero_points_count(keys: dict[str, Any], bits: float) -> None:
    matrix = nn.Linear(256, 64, bias=False)
    compress = Quantize(**{"name": "a", "method": "rtn"} | keys)
    assert bits_of(compress, [matrix.weight, matrix.weight]) == pytest.approx(bits * 2 * 64 * 256)


def test_zeros_are_weights() -> None:
    matrix = nn.Linear(256, 64, bias=False)
    nn.init.zeros_(matrix.weight[:16])
    assert bits_of(Sparsify(name="a", method="wanda", sparsity=0.25), [matrix.weight]) == 32 * 64 * 256
    assert sparsity_of([matrix.weight]) == 0.25


def test_scales_are_no_parameters() -> None:
    matrix = nn.Linear(8, 4)
    matrix.weight_scale = nn.Parameter(matrix.weight.detach()[:, :1].clone())
    shared = nn.Linear(8, 4, bias=False)
    shared.weight = matrix.weight
    assert parameters_of(nn.Sequential(matrix, shared, nn.LayerNorm(4))) == 8 * 4 + 4 + 2 * 4
