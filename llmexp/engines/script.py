"""Any training program: what follows `torchrun --nproc_per_node N` on its command line, measured from one call of llmexp.hook.step to the next."""

from __future__ import annotations

import hashlib
import shlex
from pathlib import Path
from typing import Any

from llmexp.engines.base import Engine
from llmexp.engines.torchrun import torchrun
from llmexp.errors import ConfigError, unknown
from llmexp.method import Techniques
from llmexp.plan.dims import ParallelDims
from llmexp.plan.run_plan import Command
from llmexp.schema import RunConfig

WORKER = "llmexp.launchers.script"
COMMAND = "command"


class ScriptEngine(Engine):
    """Starts the program and listens; model, batch, precision and optimizer are the program's own, and the configuration only says what they are."""

    name = "script"
    modules = ("torch",)
    distributions = ("torch", "transformers", "accelerate", "deepspeed", "trl", "megatron-core", "torchtitan", "lightning", "flash-attn", "triton")
    builds_model = False

    def unsupported(self, config: RunConfig, techniques: Techniques, dims: ParallelDims) -> str | None:
        """No atom reaches into the program."""
        if techniques != Techniques():
            return f"engine=script cannot apply method={config.method} to a program: write it into engine.options.{COMMAND}, and leave method=Naive"
        return None

    def native_config(self, config: RunConfig, techniques: Techniques, dims: ParallelDims) -> dict[str, Any]:
        """The program's words, and the digest of its file, so that another program is another run."""
        given = config.engine.options
        surplus = next((key for key in given if key != COMMAND), None)
        if surplus:
            raise unknown("engine.options of engine=script", surplus, [COMMAND])
        words = shlex.split(str(given.get(COMMAND) or ""))
        if not words or words == ["-m"]:
            raise ConfigError(f"engine=script needs engine.options.{COMMAND}='train.py --lr 1', or '-m package.train': what torchrun would start")
        return {"argv": words, "sha256": None if words[0] == "-m" else _digest(Path(words[0]))}

    def command(self, config: RunConfig, dims: ParallelDims) -> Command:
        """Torchrun, one rank a device."""
        return torchrun(config, dims, WORKER)


def _digest(program: Path) -> str:
    try:
        return hashlib.sha256(program.read_bytes()).hexdigest()
    except OSError as error:
        raise ConfigError(f"engine.options.{COMMAND} starts {program}: {error.strerror}; a module is started by '-m package.train'") from None


ENGINE = ScriptEngine()
