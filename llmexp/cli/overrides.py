"""Overrides as people type them, checked before anything is composed."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Sequence
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep, Override, RangeSweep

from llmexp.cli.arguments import COMMAND_NAMES
from llmexp.cli.check import check_key, keys, refuse_secret, takes_several
from llmexp.cli.compose import groups_of
from llmexp.cli.places import spelled_out
from llmexp.errors import ConfigError, hint
from llmexp.method import Method
from llmexp.terms import meant_by

# Any key is allowed below this one, but Hydra requires a plus sign for a key that it does not know.
OPTIONS_OF_SBATCH = "hydra.launcher.options."
# Hydra would not take these for a name, alone or between commas.
NUMBER = re.compile(r"(?<![^,(])(?:[-+.\deE_]*\d[-+.\deE_]*|true|false|null)(?![^,)])", re.IGNORECASE)


def accept(loader: ConfigLoader, words: Sequence[str]) -> list[str]:
    """Turn overrides as people type them into Hydra's; raises ConfigError for an unknown key.

    A plus sign in front makes no difference. Groups and method are set; other keys are set whether the YAML has them or
    only the schema.
    """
    for word in words:
        if "=" not in word and not word.startswith("~"):
            raise _no_override(loader, word)
    if any(word.startswith("detach=") for word in as_typed(words)) and not any(
        word.startswith("hydra/launcher=") for word in words
    ):
        raise ConfigError("detach belongs to hydra/launcher=slurm, and the command line names no launcher")
    words = spelled_out(loader, words)
    groups = groups_of(loader)
    parsed = OverridesParser.create(config_loader=loader).parse_overrides(list(words))
    return [_accept_one(override, groups) for override in parsed]


def print_replaced(words: Sequence[str]) -> None:
    """Say of each word that a later one gives another value which of them counts, as in all programs of Hydra."""
    given: dict[str, str] = {}
    for word in as_typed(words):
        key, equals, value = word.partition("=")
        if equals and given.get(key, value) != value:
            print(f"llmexp: {key}={given[key]} is replaced by {key}={value}, which comes later", file=sys.stderr)
        given[key] = value


def as_typed(overrides: Sequence[str]) -> list[str]:
    """Return the overrides without Hydra's plus signs."""
    return [override.lstrip("+") for override in overrides]


def _no_override(loader: ConfigLoader, word: str) -> ConfigError:
    """Build the error for a word without '='."""
    groups = [group for group in sorted(groups_of(loader)) if word in loader.get_group_options(group)]
    command = meant_by("command", word)
    meant = f"write {command}; " if command else None
    meant = meant or next((f"did you mean {group}={word}? " for group in groups), None) or _method(word) or _key(word)
    guess = meant or hint("command", word, COMMAND_NAMES)
    return ConfigError(f"'{word}' is neither key=value nor a command: {guess}commands are {', '.join(COMMAND_NAMES)}")


def _method(word: str) -> str | None:
    try:
        Method.parse(word, "finetune" if word.upper() in ("L", "QL", "P") else "pretrain")
    except ConfigError:
        return None
    return f"did you mean method={word}? "


def _key(word: str) -> str | None:
    name, colon, value = word.partition(":")
    if name in keys():
        return f"write {name}={value if colon else '<value>'}; "
    meant = meant_by("key", word)
    return f"write {meant}; " if meant else None


def _accept_one(override: Override, groups: Collection[str]) -> str:
    key, line = override.key_or_group, _line(override)
    plain = line.lstrip("+")
    refuse_secret(key, plain.partition("=")[2])
    if key == "detach":
        return f"hydra.launcher.{plain}"
    if key.startswith(OPTIONS_OF_SBATCH):
        return f"++{plain}"
    if key.partition("/")[0].partition(".")[0] == "hydra" or override.package or override.is_delete():
        return line
    if (key in groups or key == "method") and isinstance(override.value(), IntervalSweep | RangeSweep):
        raise ConfigError(f"{plain}: {key} takes names: write them with commas")
    if key in groups:
        return _named(key, plain, override.value())
    check_key(key)
    if takes_several(key) and override.is_choice_sweep():
        return f"++{key}=[{plain.partition('=')[2]}]"
    return f"method={_quoted(plain)}" if key == "method" and not isinstance(override.value(), list) else f"++{plain}"


def _named(group: str, choice: str, value: Any) -> str:
    """Return the override of a group; raises ConfigError for a list.

    Its options are names, also those that look like numbers, such as hardware=4090.
    """
    if isinstance(value, list | dict):
        names = choice.partition("=")[2].strip("[]{}")
        raise ConfigError(
            f"{choice}: {group} takes the name of an option, or several names for one run each: {group}={names}"
        )
    return f"{group}={_quoted(choice)}"


def _quoted(choice: str) -> str:
    """Return the value of a choice, with quotes around what Hydra would not take for a name."""
    return NUMBER.sub(lambda found: repr(found[0]), choice.partition("=")[2])


def _line(override: Override) -> str:
    line: Any = override.input_line
    return str(line)
