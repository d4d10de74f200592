"""What every run is told, whatever its task: hardware, engine, protocol, and where it is recorded. A task adds sections of its own."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from llmexp.schema.machine import HardwareConfig, NodeConfig
from llmexp.schema.runtime import RuntimeConfig
from llmexp.schema.section import NonNegativeInt, PositiveFloat, PositiveInt, Section
from llmexp.schema.sweep import BudgetConfig, SweepConfig, TrackingConfig


class TaskConfig(Section):
    """What is done and measured; the name says which sections there are besides."""

    name: str


class EngineConfig(Section):
    """Who does the work, and who starts its ranks."""

    name: str
    launcher: Literal["spawn", "torchrun", "deepspeed", "python", "fork"] = Field(
        description="spawn: llmexp starts an interpreter for each rank; torchrun, deepspeed: these do, as in your own scripts; "
        "python: a program of one process, plainly; fork: ranks come from one process that has imported for all, on a CPU"
    )
    options: dict[str, Any] = Field(
        default_factory=dict, description="merged over the native configuration of the engine"
    )


class MeasureConfig(Section):
    """The protocol: fresh-process repeats, and limits."""

    name: str
    repeats: PositiveInt
    timeout_s: PositiveFloat
    no_progress_timeout_s: PositiveFloat
    threads_per_rank: PositiveInt | None = Field(
        None, description="None: the node's cores shared out; on cuda your own OMP_NUM_THREADS comes first"
    )


class RunConfig(Section):
    """The sections that all tasks share; each task's own configuration has further ones."""

    task: TaskConfig
    hardware: HardwareConfig
    engine: EngineConfig
    measure: MeasureConfig
    runtime: RuntimeConfig
    node: NodeConfig = NodeConfig()
    tracking: TrackingConfig
    sweep: SweepConfig
    budget: BudgetConfig = BudgetConfig()
    seed: NonNegativeInt
    control: bool = Field(False, description="the same run once more, at the end of a sweep with sweep.control=true")
    force: bool = Field(description="start even where memory is certain to run out")
    rerun: Literal["none", "failed", "stale", "all"] = Field(
        description="which earlier results of the same run to measure again"
    )

    @property
    def inputs(self) -> tuple[str, ...]:
        """Files and folders that the ranks read, as far as the configuration names any."""
        return ()

    @property
    def targets(self) -> tuple[str, ...]:
        """Dotted paths of classes that the ranks import."""
        return ()
