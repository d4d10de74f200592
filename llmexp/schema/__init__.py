"""The configuration: every key that a person may set, with its type, unit and range.

The YAML of `conf/` composes into the configuration of a task, such as `TrainingConfig`, which has `RunConfig`'s sections and its own;
`llmexp.cli.check` turns pydantic's findings into one line with the nearest valid key.
"""

from __future__ import annotations

from llmexp.schema.data import DataConfig
from llmexp.schema.machine import HardwareConfig, NodeConfig, RuntimeConfig
from llmexp.schema.model import AdapterConfig, ModelConfig
from llmexp.schema.run import EngineConfig, MeasureConfig, RunConfig, TaskConfig
from llmexp.schema.section import BYTES_PER_ELEMENT, BYTES_PER_MOMENT, CpKind, Dtype, Section
from llmexp.schema.sweep import BudgetConfig, SweepConfig, TrackingConfig
from llmexp.schema.training import (
    BatchConfig,
    KernelsConfig,
    MemoryConfig,
    OptimizerConfig,
    ParallelismConfig,
    PrecisionConfig,
    TrainingConfig,
    TrainingMeasureConfig,
    TrainingTaskConfig,
)

__all__ = [
    "AdapterConfig",
    "BYTES_PER_ELEMENT",
    "BYTES_PER_MOMENT",
    "BatchConfig",
    "BudgetConfig",
    "CpKind",
    "DataConfig",
    "Dtype",
    "EngineConfig",
    "HardwareConfig",
    "KernelsConfig",
    "MeasureConfig",
    "MemoryConfig",
    "ModelConfig",
    "NodeConfig",
    "OptimizerConfig",
    "ParallelismConfig",
    "PrecisionConfig",
    "RunConfig",
    "RuntimeConfig",
    "Section",
    "SweepConfig",
    "TaskConfig",
    "TrackingConfig",
    "TrainingConfig",
    "TrainingMeasureConfig",
    "TrainingTaskConfig",
]
