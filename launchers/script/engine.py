"""The script engine measures any training program from the end of one step to the end of the next.

The program is what follows `torchrun --nproc_per_node N`, or `python`, on its command line. The end of a step is told
by a call of llmexp.hook.step, by a line that the program prints, or by a callback of transformers' Trainer.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from llmexp.errors import ConfigError, unknown
from llmexp.launch.commands import ranks_of
from llmexp.launchers.script.presets import PROGRAM_PRESETS
from llmexp.method import Techniques
from llmexp.record.plan import Command
from llmexp.schema.run import PYTHON
from llmexp.training.config import TrainingConfig
from llmexp.training.engine import TrainingEngine
from llmexp.training.plan.degrees import DEGREES
from llmexp.training.plan.dims import ParallelDims

WORKER = "llmexp.launchers.script.worker"
COMMAND = "command"
OPTIONS = (COMMAND, "preset", "pattern")
_OF_GPUS = re.compile(r"NCCL|CUDA|_cuda_")
GROUPS = ("loss", "step", "samples", "tokens")


class ScriptEngine(TrainingEngine):
    """An engine that starts a program and listens.

    Model, batch, precision and optimizer are the program's own; the configuration only declares them.
    """

    name = "script"
    # The program lays out its ranks itself; what it is told to be is declared.
    degrees = tuple(DEGREES)
    launchers = ("spawn", "torchrun", PYTHON)
    modules = ("torch",)
    distributions = (
        "torch",
        "transformers",
        "accelerate",
        "deepspeed",
        "trl",
        "megatron-core",
        "torchtitan",
        "lightning",
        "flash-attn",
        "triton",
    )
    builds_model = False

    def unsupported(self, config: TrainingConfig, techniques: Techniques, dims: ParallelDims) -> str | None:
        """Say why a method or pretrained weights cannot be applied: llmexp changes nothing inside the program."""
        if config.model.checkpoint:
            return "engine=script: the program itself chooses its initial weights: set model.weights=random"
        if techniques != Techniques():
            return (
                f"engine=script cannot apply method={config.method} to a program: write it into "
                f"engine.options.{COMMAND}, and leave method=Naive"
            )
        return None

    def advice(self, config: TrainingConfig, reason: str) -> str:
        """Say what to do, with hardware=cpu, about a program that uses GPUs nevertheless."""
        if config.hardware.device != "cpu" or not _OF_GPUS.search(reason):
            return ""
        if config.engine.launcher == PYTHON:
            return f"hardware={config.hardware.name} hides the GPUs: give the program its own option for CPUs"
        return f"many programs use GPUs when RANK is set: engine.launcher={PYTHON} starts one process without it"

    def native_config(self, config: TrainingConfig, techniques: Techniques, dims: ParallelDims) -> dict[str, Any]:
        """Return the program's words, how its steps are heard, and its file's digest.

        The digest makes a changed program another run.
        """
        given = config.engine.options
        if config.measure.duration_s:
            raise ConfigError(
                "measure.duration_s: a program of your own ends by itself: set measure.steps, and leave it out"
            )
        surplus = next((key for key in given if key not in OPTIONS), None)
        if surplus:
            raise unknown("engine.options of engine=script", surplus, OPTIONS)
        words = shlex.split(str(given.get(COMMAND) or ""))
        if not words or words == ["-m"]:
            raise ConfigError(
                f"engine=script needs engine.options.{COMMAND}='train.py --lr 1', or '-m package.train': what "
                "follows python"
            )
        program = {"argv": words, "sha256": None if words[0] == "-m" else _digest(Path(words[0]))}
        # A program does other things without a rank's variables, and the launcher alone would not change the run's id.
        alone = {"launcher": PYTHON} if config.engine.launcher == PYTHON else {}
        return program | _heard(given.get("preset"), given.get("pattern")) | alone

    def known_options(self, config: TrainingConfig, native: Mapping[str, Any]) -> Collection[str] | None:
        """Return the engine's own options, which `native_config` has checked."""
        return OPTIONS

    def command(self, config: TrainingConfig, dims: ParallelDims) -> Command:
        """Return the command that starts one rank per device, or one process that Python starts."""
        return ranks_of(config, dims.world_size, WORKER)


def _heard(preset: str | None, pattern: str | None) -> dict[str, Any]:
    """Return how steps are heard: `line` is the expression for the line that ends a step.

    Without it, `callback` says whether Trainers get a callback; without both, the program calls the hook.
    """
    if preset and pattern:
        raise ConfigError(
            f"engine.options.pattern={pattern} and engine.options.preset={preset}: a preset has its own pattern: "
            f"leave one of them out"
        )
    if not preset:
        return {
            "line": _checked(str(pattern)) if pattern else None,
            "callback": False,
            "every_step": "its log interval to 1",
        }
    if preset not in PROGRAM_PRESETS:
        raise unknown("engine.options.preset", str(preset), PROGRAM_PRESETS)
    known = PROGRAM_PRESETS[preset]
    return {"line": known.pattern, "callback": known.pattern is None, "every_step": known.every_step}


def _checked(pattern: str) -> str:
    try:
        groups = re.compile(pattern).groupindex
    except re.error as error:
        raise ConfigError(f"engine.options.pattern={pattern} is not a Python regular expression: {error}") from None
    odd = next((name for name in groups if name not in GROUPS), None)
    if odd:
        raise unknown("group of engine.options.pattern", odd, GROUPS)
    if "loss" not in groups:
        raise ConfigError(f"engine.options.pattern={pattern} needs a group for the loss: (?P<loss>[0-9.]+)")
    return pattern


def _digest(program: Path) -> str:
    try:
        return hashlib.sha256(program.read_bytes()).hexdigest()
    except OSError as error:
        raise ConfigError(
            f"engine.options.{COMMAND} starts {program}: {error.strerror}; a module is started by '-m package.train'"
        ) from None


ENGINE = ScriptEngine()
