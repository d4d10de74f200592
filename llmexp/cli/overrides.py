"""Overrides as people type them, checked before anything is composed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override

from llmexp.cli.arguments import COMMAND_NAMES
from llmexp.cli.check import check_key
from llmexp.cli.places import spelled_out
from llmexp.errors import ConfigError, nearest

# Any key goes there, though Hydra wants a plus sign for one that it does not know.
OPTIONS_OF_SBATCH = "hydra.launcher.options."


def accept(loader: ConfigLoader, words: Sequence[str]) -> list[str]:
    """Turn overrides as people type them into Hydra's; raises ConfigError for a key that there is not.

    A plus sign in front makes no difference: groups and method are set, other keys are set whether the YAML has them or only the schema.
    """
    for word in words:
        _check_form(word)
    if any(word.startswith("detach=") for word in as_typed(words)) and not any(word.startswith("hydra/launcher=") for word in words):
        raise ConfigError("detach is hydra/launcher=slurm's, and the command line names no launcher")
    words = spelled_out(loader, words)
    groups = set(loader.list_groups(""))
    parsed = OverridesParser.create(config_loader=loader).parse_overrides(list(words))
    return [_accept_one(override, groups) for override in parsed]


def as_typed(overrides: Sequence[str]) -> list[str]:
    """The overrides without Hydra's plus signs."""
    return [override.lstrip("+") for override in overrides]


def _check_form(word: str) -> None:
    if "=" not in word and not word.startswith("~"):
        guess = nearest(word, COMMAND_NAMES)
        hint = f"did you mean {guess}? " if guess else ""
        raise ConfigError(f"'{word}' is neither key=value nor a command: {hint}commands are {', '.join(COMMAND_NAMES)}")


def _accept_one(override: Override, groups: set[str]) -> str:
    key, line = override.key_or_group, _line(override)
    plain = line.lstrip("+")
    if key == "detach":
        return f"hydra.launcher.{plain}"
    if key.startswith(OPTIONS_OF_SBATCH):
        return f"++{plain}"
    if key.partition("/")[0].partition(".")[0] == "hydra" or override.package or override.is_delete():
        return line
    if key in groups:
        return plain
    check_key(key)
    return plain if key == "method" else f"++{plain}"


def _line(override: Override) -> str:
    line: Any = override.input_line
    return str(line)
