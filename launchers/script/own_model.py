"""Compares the model that a user's program trains with the configuration's.

Only where they agree do the configuration's FLOPs hold for the program.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from llmexp.dtypes import of_parameters
from llmexp.measure.dtypes import torch_dtype
from llmexp.training.plan.training_plan import TrainingPlan

DTYPES = {torch_dtype(name): name for name in of_parameters()}


class OwnModel:
    """The size of a module, known at once, and the dtype of its matrix products, seen in its first pass."""

    def __init__(self, module: nn.Module) -> None:
        # ZeRO-3 leaves a parameter empty between passes, and keeps its size in ds_numel.
        sizes = [(int(getattr(one, "ds_numel", one.numel())), one.requires_grad) for one in module.parameters()]
        self.parameters = sum(size for size, _ in sizes)
        self.trainable_parameters = sum(size for size, trains in sizes if trains)
        self.dtype: str | None = None
        linear = next((one for one in module.modules() if isinstance(one, nn.Linear)), None)
        self._seen = linear.register_forward_pre_hook(self._see) if linear else None

    def _see(self, linear: nn.Module, _: Any) -> None:
        """Note the dtype inside the layer, where it is known whether autocast is on."""
        weight = linear.get_parameter("weight")
        kind = weight.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype
        self.dtype = DTYPES.get(dtype, str(dtype))
        if self._seen:
            self._seen.remove()


def why_no_flops(plan: TrainingPlan, own: OwnModel | None) -> str | None:
    """Say why the FLOPs of the configuration's model cannot be taken for those of the program.

    Returns None where size and dtype are the same.
    """
    if plan.engine_config["line"]:
        return "a printed line does not say which model was trained"
    if own is None:
        return "the program has not said which model it trains: llmexp.hook.model(model)"
    name, precision = plan.config.model.name, plan.config.precision
    if plan.parameters is None or plan.trainable_parameters is None:
        return f"the size of model={name} is not known without building it"
    if (own.parameters, own.trainable_parameters) != (plan.parameters, plan.trainable_parameters):
        said = f"{plan.trainable_parameters:,} of {plan.parameters:,}"
        return (
            f"the program trains {own.trainable_parameters:,} of {own.parameters:,} parameters, model={name} is {said}"
        )
    if own.dtype != precision.parameters:
        return (
            f"the program's matrix products are in {own.dtype or 'a dtype that was not seen'}, "
            f"precision={precision.name} says {precision.parameters}"
        )
    return None
