"""Quantization-aware training by torchao: forward rounds weights, and gradients pass as if it had not.

Weights beyond the largest code get none.
"""

from __future__ import annotations

import torch
from torch import nn

from llmexp.errors import ConfigError
from llmexp.launchers.models.compiled import decoder_layers
from llmexp.record.what_ran import WhatRan
from llmexp.training.config import PrecisionConfig


def round_weights(model: nn.Module, precision: PrecisionConfig) -> None:
    """Let the decoder layers' linear layers round their weights in place; their names and dtypes stay."""
    from torchao.quantization import quantize_
    from torchao.quantization.qat import IntxFakeQuantizeConfig, QATConfig

    dtype = getattr(torch, str(precision.qat))
    rounded = IntxFakeQuantizeConfig(dtype, group_size=precision.qat_group_size, is_symmetric=True)
    for layer in decoder_layers(model):
        quantize_(layer, QATConfig(weight_config=rounded, step="prepare"))


def weights_that_were_rounded(module: nn.Module) -> WhatRan:
    """Say, for what_ran, how many linear layers round their weights, and to what.

    Raises ConfigError where one did not.
    """
    from torchao.quantization.qat.linear import FakeQuantizedLinear

    rounding = [each.weight_fake_quantizer for each in module.modules() if isinstance(each, FakeQuantizedLinear)]
    done = [each.config for each in rounding if each.scale is not None]
    if not done or len(done) < len(rounding):
        raise ConfigError(f"precision.qat: {len(done)} of {len(rounding)} linear layers rounded their weights")
    kinds = {f"{each.dtype}".removeprefix("torch.") + f" in groups of {each.group_size}" for each in done}
    return {"rounded_weights": f"{', '.join(sorted(kinds))}, {len(done)} matrices"}
