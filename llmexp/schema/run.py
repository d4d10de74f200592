"""The configuration that all tasks share: hardware, engine, protocol and tracking; each task adds its own sections."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from llmexp.schema.machine import HardwareConfig, NodeConfig
from llmexp.schema.model import HfModel
from llmexp.schema.runtime import RuntimeConfig
from llmexp.schema.section import PositiveFloat, PositiveInt, Section, Seed
from llmexp.schema.sweep import BudgetConfig, SweepConfig, TrackingConfig

# The value of engine.launcher that starts one process without any launcher.
PYTHON = "python"


class TaskConfig(Section):
    """The task that is done and measured; its name decides which further sections there are."""

    name: str


class EngineConfig(Section):
    """The engine that does the work, and the launcher that starts its ranks."""

    name: str
    launcher: Literal["spawn", "torchrun", "deepspeed", "python", "fork"] = Field(
        description=(
            "spawn: llmexp starts an interpreter for each rank; torchrun, deepspeed: they start the ranks, as in your "
            "own scripts; python: one process, without a launcher; fork: ranks are forked from one process that has "
            "done the imports, on a CPU"
        )
    )
    options: dict[str, Any] = Field(
        default_factory=dict, description="merged over the native configuration of the engine"
    )


class MeasureConfig(Section):
    """The measurement protocol: repeats in fresh processes, and limits of time."""

    name: str
    repeats: PositiveInt
    order: Literal["run_by_run", "interleaved"] = Field(
        "run_by_run",
        description=(
            "of a sweep's repeats: all of one run, then all of the next; or the first of every run, then the second of "
            "every run, so drift of the machine favors none"
        ),
    )
    timeout_s: PositiveFloat
    no_progress_timeout_s: PositiveFloat
    threads_per_rank: PositiveInt | None = Field(
        None,
        description="None: the node's cores divided among ranks; on cuda your own OMP_NUM_THREADS takes precedence",
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
    seed: Seed
    control: bool = Field(False, description="marks the repeated run at the end of a sweep with sweep.control=true")
    force: bool = Field(description="start even if memory is certain to run out")
    rerun: Literal["none", "failed", "stale", "all"] = Field(
        description="which earlier results of the same run to measure again"
    )

    @property
    def is_interleaved(self) -> bool:
        """Tell whether the run's repeats take turns with those of the sweep's other runs."""
        return self.measure.order == "interleaved"

    @property
    def inputs(self) -> tuple[str, ...]:
        """The files and folders that the ranks read, as far as the configuration names any."""
        return ()

    @property
    def starts_from(self) -> HfModel | None:
        """The model that another run of the sweep makes and this one starts from; None where it needs no other run."""
        model = getattr(self, "model", None)
        return model if isinstance(model, HfModel) and model.made else None

    @property
    def targets(self) -> tuple[str, ...]:
        """The dotted paths of classes that the ranks import."""
        return ()
