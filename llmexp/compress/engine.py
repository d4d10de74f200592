"""The interface of the engines that make a trained model smaller."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from llmexp.compress.config import CompressRunConfig
from llmexp.record.plan import Command
from llmexp.tasks.engine import Engine


class CompressEngine(Engine[CompressRunConfig]):
    """An engine with one process, which compresses a model and reads held-out documents with both."""

    tasks = ("compress",)

    @abstractmethod
    def command(self, config: CompressRunConfig) -> Command:
        """Return the command that starts the process."""

    @abstractmethod
    def native(self, config: CompressRunConfig) -> dict[str, Any]:
        """Return what the process is told besides the configuration."""

    def unsupported(self, config: CompressRunConfig) -> str | None:
        """Say why this engine cannot do the run on its hardware, as the reason of a skip; None where it can."""
        return None
