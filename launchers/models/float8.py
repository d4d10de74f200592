"""Linear layers that multiply in fp8 by torchao, and the proof that they did."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from llmexp.errors import ConfigError
from llmexp.launchers.models.compiled import decoder_layers
from llmexp.record.what_ran import WhatRan
from llmexp.training.plan.float8 import ADA, MX, MX_ARCHITECTURES
from llmexp.training.plan.training_plan import TrainingPlan

PRODUCT = "aten::_scaled_mm"
# A layer's result, and the gradients of its input and its weight.
_PRODUCTS = {"tensorwise": 3, "rowwise": 3, "rowwise_with_gw_hp": 2, MX: 3}


def convert_linears(model: nn.Module, options: Mapping[str, Any]) -> None:
    """Convert the decoder layers' linear layers in place; their weights and the names of these stay.

    Raises ConfigError for a GPU that does not multiply fp8.
    """
    _check_device(options)
    _quiet()
    if options["recipe"] == MX:
        _share_scales(model, emulated=options["emulate"])
        return
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    fields = {name: value for name, value in options.items() if name != "recipe"}
    config = replace(Float8LinearConfig.from_recipe_name(options["recipe"]), **fields)
    for layer in decoder_layers(model):
        convert_to_float8_training(layer, config=config)


def _share_scales(model: nn.Module, *, emulated: bool) -> None:
    from torchao.float8.float8_linear_utils import swap_linear_layers
    from torchao.prototype.moe_training.mxfp8_linear import MXFP8Linear
    from torchao.quantization.quantize_.common.kernel_preference import KernelPreference

    kernels = KernelPreference.EMULATED if emulated else KernelPreference.AUTO

    def shared(linear: nn.Linear) -> nn.Linear:
        with torch.device("meta"):
            made = MXFP8Linear(linear.in_features, linear.out_features, bias=False, kernel_preference=kernels)
        made.weight, made.bias = linear.weight, linear.bias
        return made

    for layer in decoder_layers(model):
        swap_linear_layers(layer, shared)


def float8_that_ran(plan: TrainingPlan, module: nn.Module, names: Mapping[str, int]) -> WhatRan:
    """Say, for what_ran, how many linear layers multiplied in fp8 in a profiled step.

    `names` counts the operators of that step. Raises ConfigError where it had fewer products in fp8 than these layers.
    """
    options, layers = plan.engine_config["float8"], _converted(module)
    said = f"fp8 {options['recipe']} in {layers} layers"
    if options["emulate"]:
        dtype = "bf16" if options["recipe"] == MX else "fp32"
        return {"linears": f"{said}, emulated: rounded to fp8, multiplied in {dtype}"}
    seen, least = names.get(PRODUCT, 0), _PRODUCTS[options["recipe"]] * layers * plan.batch.accumulation
    if not layers or seen < least:
        raise ConfigError(
            f"precision.linears=fp8: a step had {seen} products by {PRODUCT}, and {layers} layers make {least} at least"
        )
    return {"linears": f"{said}, {seen} products by {PRODUCT} in a step"}


def _converted(module: nn.Module) -> int:
    from torchao.float8.float8_linear import Float8Linear
    from torchao.prototype.moe_training.mxfp8_linear import MXFP8Linear

    return sum(isinstance(each, Float8Linear | MXFP8Linear) for each in module.modules())


def _check_device(options: Mapping[str, Any]) -> None:
    if options["emulate"] or not torch.cuda.is_available() or torch.version.hip:
        return
    major, minor = torch.cuda.get_device_capability()
    if options["recipe"] == MX and 10 * major + minor not in MX_ARCHITECTURES:
        raise ConfigError(
            f"precision.scaling={MX}: this GPU has compute capability {major}.{minor}, and torchao's kernels take 10: "
            "set engine.options.float8.emulate=true"
        )
    if 10 * major + minor < ADA:
        raise ConfigError(
            f"precision.linears=fp8: this GPU has compute capability {major}.{minor}, and multiplies no fp8, which "
            f"takes 8.9: name it by hardware=, or set engine.options.float8.emulate=true"
        )


def _quiet() -> None:
    """Silence torchao's warnings, on every rank, of kernels for other things that did not load."""
    for name in ("torchao", "torch.utils._pytree"):
        logging.getLogger(name).setLevel(logging.ERROR)
