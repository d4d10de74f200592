"""An engine whose ranks are quick and need no torch."""

from __future__ import annotations

import sys
from typing import Any

from chaos.ranks import LAUNCHER
from llmexp.method import Techniques
from llmexp.record.plan import Command
from llmexp.training.config import TrainingConfig
from llmexp.training.engine import TrainingEngine
from llmexp.training.plan.dims import ParallelDims


class ScriptedEngine(TrainingEngine):
    """An engine that starts chaos.ranks; every method is the same to it."""

    name = "scripted"
    modules = ()
    distributions = ()

    def unsupported(self, config: TrainingConfig, techniques: Techniques, dims: ParallelDims) -> str | None:
        """Return None: it supports everything."""
        return None

    def native_config(self, config: TrainingConfig, techniques: Techniques, dims: ParallelDims) -> dict[str, Any]:
        """Return an empty configuration."""
        return {}

    def command(self, config: TrainingConfig, dims: ParallelDims) -> Command:
        """Return the command of one launcher a node, which starts its ranks."""
        return Command(argv=[sys.executable, "-m", "chaos.ranks", "{folder}", f"{LAUNCHER}{{node}}"])


ENGINE = ScriptedEngine()
