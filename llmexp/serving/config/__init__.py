"""The keys of a serving run: the server, and the load that is put on it."""

from __future__ import annotations

from llmexp.serving.config.engine import ServerEngineConfig
from llmexp.serving.config.run import ServingRunConfig

__all__ = [
    "ServerEngineConfig",
    "ServingRunConfig",
]
