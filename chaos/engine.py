"""An engine whose ranks are quick and need no torch."""

from __future__ import annotations

import sys
from typing import Any

from chaos.ranks import LAUNCHER
from llmexp.engines.base import Engine
from llmexp.method import Techniques
from llmexp.plan.dims import ParallelDims
from llmexp.plan.run_plan import Command
from llmexp.schema import RunConfig


class ScriptedEngine(Engine):
    """Starts chaos.ranks; every method is the same to it."""

    name = "scripted"
    modules = ()
    distributions = ()

    def unsupported(self, config: RunConfig, techniques: Techniques, dims: ParallelDims) -> str | None:
        """Nothing."""
        return None

    def native_config(self, config: RunConfig, techniques: Techniques, dims: ParallelDims) -> dict[str, Any]:
        """None of its own."""
        return {}

    def command(self, config: RunConfig, dims: ParallelDims) -> Command:
        """One launcher a node, which starts its ranks."""
        return Command(argv=[sys.executable, "-m", "chaos.ranks", "{folder}", f"{LAUNCHER}{{node}}"])


ENGINE = ScriptedEngine()
