"""What an optimizer reads and writes for each parameter that it updates on the device."""

from __future__ import annotations

from llmexp.dtypes import bytes_of
from llmexp.training.config import AdamW
from llmexp.training.plan.training_plan import TrainingPlan

# torch's Adafactor goes over tensors of a gradient's size so often: means of rows and columns, estimate, its root,
# update, norms, weights (torch 2.x, optim/_adafactor.py). It keeps few states.
_ADAFACTOR, _ADAFACTOR_ACCESSES = "torch.optim.Adafactor", 12
_ELEMENTWISE = ("torch.optim.SGD", "bitsandbytes.optim.")
FUSED, UNFUSED = 0.0, 1.0


def unknown_update(plan: TrainingPlan) -> str:
    """Say why an optimizer's update has no known bytes; empty where it has."""
    optimizer = plan.config.optimizer
    if isinstance(optimizer, AdamW) or optimizer.target == _ADAFACTOR:
        return ""
    if optimizer.fused_backward:
        return f"optimizer={optimizer.name} updates within backward, which is not predicted"
    if optimizer.rest is not None:
        return f"the products of matrices in the update of optimizer={optimizer.name} are not predicted"
    known = optimizer.target.startswith(_ELEMENTWISE) and optimizer.moments is not None
    return "" if known else f"what optimizer={optimizer.name} reads and writes is not known"


def bytes_of_update(plan: TrainingPlan) -> float:
    """Return the bytes of a parameter: weight and gradient in, weight out, moments and a master copy in and out."""
    precision, optimizer = plan.config.precision, plan.config.optimizer
    weight, gradient = bytes_of(precision.parameters), bytes_of(precision.gradients)
    if not isinstance(optimizer, AdamW) and optimizer.target == _ADAFACTOR:
        return float(_ADAFACTOR_ACCESSES * bytes_of(precision.master))
    copy = bytes_of(precision.master) if precision.master != precision.parameters else 0
    return 2.0 * weight + gradient + 2 * ((plan.optimizer_state_bytes_per_parameter or 0.0) + copy)
