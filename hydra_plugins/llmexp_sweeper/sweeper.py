"""The sweeper of llmexp: plans an experiment's cells and the command line's sweeps before the first run starts."""

from __future__ import annotations

from typing import Any

# Imported here and not from cli.hydra_private, because Hydra loads its plugins, this file among them, a second time.
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_store import ConfigStore
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

# cells: mappings of overrides, with a list or commas for several values; the sweep is the union of the cells' products.
# It is a plain mapping, because the way in which Hydra loads plugins breaks a dataclass with postponed annotations.
_NODE = {"_target_": "hydra_plugins.llmexp_sweeper.sweeper.LlmexpSweeper", "cells": []}
ConfigStore.instance().store(group="hydra/sweeper", name="llmexp", node=_NODE, provider="llmexp")


class LlmexpSweeper(BasicSweeper):
    """A sweeper that hands planned jobs to the configured launcher and returns the exit code."""

    def __init__(self, cells: list[dict[str, Any]]) -> None:
        super().__init__(max_batch_size=None)
        self.cells = cells

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Keep the task, which receives the plans where a launcher of another package calls it."""
        super().setup(hydra_context=hydra_context, task_function=task_function, config=config)
        self._task = task_function

    def sweep(self, arguments: list[str]) -> int:
        """Plan all jobs, run them and report them; raise ConfigError before anything has started."""
        from llmexp.cli.jobs import plan_jobs
        from llmexp.cli.launchers import PlannedTask, runner_of
        from llmexp.sweep.run import run_sweep

        assert self.hydra_context is not None
        assert self.config is not None
        assert self.launcher is not None
        assert isinstance(self._task, PlannedTask)
        jobs = plan_jobs(self.hydra_context.config_loader, self.config)
        plans = [job.plan for job in jobs]
        code = run_sweep(plans, runner_of(self.launcher, self._task, jobs))
        self._task.swept = plans
        return code
