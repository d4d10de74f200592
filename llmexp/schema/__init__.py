"""The schema of the configuration: every key that a person may set, with its type, unit and range.

The YAML of `conf/` composes into the configuration of a task, such as `TrainingConfig`, which has the sections of
`RunConfig` and its own. `llmexp.cli.check` turns pydantic's findings into one line with the nearest valid key.
"""

from __future__ import annotations

from llmexp.schema.machine import HardwareConfig, NodeConfig
from llmexp.schema.model import (
    AdapterConfig,
    DenseModel,
    FamilyModel,
    HfModel,
    MadeModel,
    MixtralModel,
    ModelConfig,
    SizedModel,
)
from llmexp.schema.run import EngineConfig, MeasureConfig, RunConfig, TaskConfig
from llmexp.schema.runtime import ContainerRuntime, HereRuntime, InterpreterRuntime, RuntimeConfig
from llmexp.schema.section import CpKind, Dtype, EndsAsLayers, Section
from llmexp.schema.sweep import BudgetConfig, SweepConfig, TrackingConfig

__all__ = [
    "AdapterConfig",
    "BudgetConfig",
    "ContainerRuntime",
    "CpKind",
    "EndsAsLayers",
    "DenseModel",
    "Dtype",
    "EngineConfig",
    "FamilyModel",
    "HardwareConfig",
    "HereRuntime",
    "HfModel",
    "MadeModel",
    "InterpreterRuntime",
    "MeasureConfig",
    "MixtralModel",
    "ModelConfig",
    "NodeConfig",
    "RunConfig",
    "RuntimeConfig",
    "Section",
    "SizedModel",
    "SweepConfig",
    "TaskConfig",
    "TrackingConfig",
]
