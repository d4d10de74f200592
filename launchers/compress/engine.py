"""The compress engine calls llm-compressor, or takes parts out itself; then both models read held-out documents."""

from __future__ import annotations

from typing import Any

from llmexp.compress.config import CompressRunConfig
from llmexp.compress.engine import CompressEngine
from llmexp.launch.command_prefix import interpreter
from llmexp.launch.commands import ranks_of
from llmexp.record.plan import Command
from llmexp.tasks.engine import ServerSoftware

WORKER = "llmexp.launchers.compress.worker"


class LlmCompressor(CompressEngine):
    """An engine with llm-compressor in an environment of its own, because it needs an older transformers."""

    name = "compress"
    modules = ("torch", "transformers", "safetensors")
    distributions = ("llmcompressor", "compressed-tensors", "torch", "transformers")
    launchers = ("spawn", "python")
    extras = "train,compress"
    installed_by = "`make compress-venv` installs it into its own environment; or set engine.python to one that has it"

    def command(self, config: CompressRunConfig) -> Command:
        """Return the command that starts the process."""
        return ranks_of(config, 1, WORKER)

    def native(self, config: CompressRunConfig) -> dict[str, Any]:
        """Return llm-compressor's interpreter, None where the method needs none, and its modifier's own options."""
        python = config.engine.python or interpreter(config.runtime)
        return {"python": python if config.uses_llm_compressor else None, "modifier": config.engine.options}

    def needed_modules(self, config: CompressRunConfig) -> tuple[str, ...]:
        """Return the modules of the process; it reads quantized weights by compressed-tensors."""
        reads = ("compressed_tensors",) if config.writes_compressed_tensors else ()
        return (*self.modules, *reads)

    def server_software(self, config: CompressRunConfig) -> ServerSoftware | None:
        """Return llm-compressor and its interpreter; None where the method needs none."""
        if not config.uses_llm_compressor:
            return None
        return ServerSoftware(
            config.engine.python, ("llmcompressor", "datasets"), self.installed_by, does="compress", beside_ranks=True
        )


ENGINE = LlmCompressor()
