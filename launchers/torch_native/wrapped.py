"""What every layout of whole models by torch says of its model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig

from llmexp.launchers.models import assembly
from llmexp.measure.dtypes import torch_dtype
from llmexp.training.plan.training_plan import TrainingPlan


class WrappedModel:
    """A model, `module`, in whatever is put around it, `model`; a layout sets both."""

    offloads = False
    repeated: Sequence[nn.Parameter] = ()
    module: Any
    model: nn.Module

    def __init__(self, plan: TrainingPlan) -> None:
        self._plan = plan

    @property
    def config(self) -> PreTrainedConfig:
        """Return the whole model's configuration."""
        config: PreTrainedConfig = self.module.config
        return config

    @property
    def wrapper_class(self) -> str:
        """The name of the class around the model, or of the model's own where nothing is around it."""
        return assembly.class_name(self.model)

    @property
    def reduced_in(self) -> torch.dtype:
        """The dtype in which gradients are added up over ranks."""
        return torch_dtype(self._plan.config.precision.gradients)
