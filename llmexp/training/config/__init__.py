"""The keys of a training run: model and data, batch, precision, parallelism, optimizer, memory and kernels."""

from __future__ import annotations

from llmexp.training.config.data import DataConfig, HfData, InstructionsData, SyntheticData, TextData, WrittenData
from llmexp.training.config.optimizer import AdamW, OptimizerConfig, TargetOptimizer
from llmexp.training.config.run import (
    BatchConfig,
    KernelsConfig,
    MemoryConfig,
    ParallelismConfig,
    PrecisionConfig,
    TrainingConfig,
    TrainingMeasureConfig,
    TrainingTaskConfig,
)

__all__ = [
    "AdamW",
    "BatchConfig",
    "DataConfig",
    "HfData",
    "InstructionsData",
    "KernelsConfig",
    "MemoryConfig",
    "OptimizerConfig",
    "ParallelismConfig",
    "PrecisionConfig",
    "SyntheticData",
    "TargetOptimizer",
    "TextData",
    "TrainingConfig",
    "TrainingMeasureConfig",
    "TrainingTaskConfig",
    "WrittenData",
]
