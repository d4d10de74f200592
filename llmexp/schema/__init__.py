"""The configuration: every key that a person may set, with its type, unit and range.

The YAML of `conf/` composes into `RunConfig`; `llmexp.cli.check` turns pydantic's findings into one line with the nearest valid key.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from llmexp.schema.data import DataConfig
from llmexp.schema.machine import HardwareConfig, NodeConfig, RuntimeConfig
from llmexp.schema.model import AdapterConfig, ModelConfig
from llmexp.schema.protocol import BudgetConfig, MeasureConfig, SweepConfig, TrackingConfig
from llmexp.schema.section import BYTES_PER_ELEMENT, BYTES_PER_MOMENT, CpKind, Dtype, NonNegativeInt, Section
from llmexp.schema.training import (
    BatchConfig,
    EngineConfig,
    KernelsConfig,
    MemoryConfig,
    OptimizerConfig,
    ParallelismConfig,
    PrecisionConfig,
    TaskConfig,
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
]


class RunConfig(Section):
    """One run, fully composed: what Hydra's groups and the command line gave."""

    method: str
    task: TaskConfig
    model: ModelConfig
    hardware: HardwareConfig
    engine: EngineConfig
    parallelism: ParallelismConfig
    optimizer: OptimizerConfig
    precision: PrecisionConfig
    data: DataConfig
    batch: BatchConfig
    measure: MeasureConfig
    runtime: RuntimeConfig
    adapter: AdapterConfig = AdapterConfig()
    memory: MemoryConfig = MemoryConfig()
    kernels: KernelsConfig = KernelsConfig()
    node: NodeConfig = NodeConfig()
    tracking: TrackingConfig
    sweep: SweepConfig
    budget: BudgetConfig = BudgetConfig()
    seed: NonNegativeInt
    control: bool = Field(False, description="the same run once more, at the end of a sweep with sweep.control=true")
    force: bool = Field(description="start even where memory is certain to run out")
    rerun: Literal["none", "failed", "stale", "all"] = Field(description="which earlier results of the same run to measure again")
