"""torch's AdamW in megatron-core's optimizer, whatever other optimizers are installed beside it (0.15, 0.16)."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from megatron.core import optimizer as megatron
from megatron.core.distributed import DistributedDataParallel

from llmexp.launchers.megatron.state import torch_optimizers


def build_optimizer(arguments: dict[str, Any], stages: Sequence[DistributedDataParallel]) -> Any:
    """Return Megatron's optimizer of these stages around torch's fused AdamW.

    Megatron itself takes the FusedAdam of TransformerEngine or Apex where one is installed. That keeps fp32 moments
    whatever the precision, and would make a result depend on what else is installed.
    """
    setattr(megatron, "Adam", torch.optim.AdamW)  # noqa: B010
    megatron.USING_PYTORCH_OPTIMIZER = True
    built = megatron.get_megatron_optimizer(
        megatron.OptimizerConfig(**arguments), stages, use_gloo_process_groups=False, **_decayed_everywhere()
    )
    _take_fused_steps(built)
    return built


def _take_fused_steps(optimizer: Any) -> None:
    """Let AdamW update in one kernel; Megatron makes it without, and so with temporary copies of all parameters."""
    for inner in torch_optimizers(optimizer):
        for group in inner.param_groups:
            group["fused"] = True


def _decayed_everywhere() -> dict[str, Any]:
    """Return the argument that decays gains too, as other engines do and Megatron by default does not.

    Versions 0.15 and 0.16 name it differently.
    """
    words = inspect.signature(megatron.get_megatron_optimizer).parameters
    return {"config_overrides": {}} if "config_overrides" in words else {"no_weight_decay_cond": lambda *_: False}
