"""An experiment as a file of one's own: what `llmexp init` writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from llmexp.errors import ConfigError

SERVE = "serve"


@dataclass(frozen=True)
class Draft:
    """The answers of a user: a task, a model, a machine, what is compared, and with which effort.

    `compared` is of methods, of task=serve of engines. `effort` is an option of measure, of task=serve the loads.
    """

    task: str
    model: str
    hardware: str
    compared: tuple[str, ...]
    effort: str

    @property
    def groups(self) -> dict[str, str]:
        """The options that all runs share; a model's folder or hub name is none."""
        named = {"task": self.task, "hardware": self.hardware}
        named |= {} if "/" in self.model else {"model": self.model}
        return named if self.task == SERVE else named | {"measure": self.effort}

    @property
    def cell(self) -> dict[str, object]:
        """The words that differ between runs, and those that no option stands for."""
        own = {"model": self.model} if "/" in self.model else {}
        return own | {"engine" if self.task == SERVE else "method": list(self.compared)}

    @property
    def keys(self) -> dict[str, object]:
        """The keys that are set in all runs, by section."""
        return {"serve": {"rate": [_load(word) for word in self.effort.split(",")]}} if self.task == SERVE else {}

    @property
    def words(self) -> list[str]:
        """The command line that says the same as the file."""
        rates = [f"serve.rate={self.effort}"] if self.task == SERVE else []
        compared = f"{'engine' if self.task == SERVE else 'method'}={','.join(self.compared)}"
        own = [f"model={self.model}"] if "/" in self.model else []
        return [*(f"{group}={option}" for group, option in self.groups.items()), *own, *rates, compared]


def write_experiment(draft: Draft, folder: Path, name: str) -> Path:
    """Write a draft below a folder for --config-dir and return its path; raises ConfigError where a file is there."""
    path = folder / "experiment" / f"{name}.yaml"
    if path.exists():
        raise ConfigError(f"{path} already exists: choose another name with --name")
    content = {
        "defaults": [{f"override /{group}": option} for group, option in draft.groups.items()],
        **draft.keys,
        "sweep": {"name": name},
        "hydra": {"sweeper": {"cells": [draft.cell]}},
    }
    shown = yaml.safe_dump(content, sort_keys=False, default_flow_style=None, allow_unicode=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"# @package _global_\n# {' '.join(command(folder, name))}\n{shown}")
    return path


def command(folder: Path, name: str, *before: str) -> Sequence[str]:
    """Return the words that run the experiment, or with a command's name before them do that."""
    return ["llmexp", *before, "--config-dir", str(folder), f"experiment={name}"]


def _load(word: str) -> float | int | str:
    loaded: float | int | str = yaml.safe_load(word)
    return loaded
