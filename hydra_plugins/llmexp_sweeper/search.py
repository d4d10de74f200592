"""Searches where a sweep would measure every choice: hydra/sweeper=search, which llmexp search sets."""

from __future__ import annotations

from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

# cells: those of an experiment that is a table, which a search refuses.
_NODE: dict[str, Any] = {
    "_target_": "hydra_plugins.llmexp_sweeper.search.SearchSweeper",
    "minimize": None,
    "maximize": None,
    "trials": 20,
    "sampler": "tpe",
    "pruner": None,
    "seed": 0,
    "cells": [],
}
ConfigStore.instance().store(group="hydra/sweeper", name="search", node=_NODE, provider="llmexp")


class SearchSweeper(Sweeper):
    """A sweeper that lets Optuna choose each run after those before it, and returns the exit code."""

    def __init__(self, **sought: Any) -> None:
        self._sought = sought

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Keep what is needed to plan trials, and the task, which receives what came of the search."""
        self._loader, self._config, self._task = hydra_context.config_loader, config, task_function

    def sweep(self, arguments: list[str]) -> int:
        """Search, and print the trials; raise ConfigError before anything has started."""
        from llmexp.cli.launchers import PlannedTask
        from llmexp.cli.search import search_setup
        from llmexp.cli.search_table import print_trials
        from llmexp.sweep.search.searching import run_search

        assert isinstance(self._task, PlannedTask)
        found = run_search(search_setup(self._loader, self._config, self._sought), print_trials)
        self._task.searched = found
        return found.code
