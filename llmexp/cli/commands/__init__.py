"""The commands beside the run itself: each is a module that is imported when its command is typed.

A module has `parser`, which takes the command's words, and `main`.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Protocol, cast

from llmexp.cli.arguments import COMMAND_NAMES, Parser
from llmexp.cli.clean import plainly
from llmexp.errors import LlmexpError
from llmexp.record.reading import plain

# These flags take the next word.
_WITH_VALUE = ("-cd", "--config-dir")


class CliCommand(Protocol):
    """A module of this package."""

    def parser(self) -> Parser:
        """Build the parser of the command's words."""

    def main(self, args: Namespace) -> int:
        """Do the command's work and return the exit code."""


def command(name: str) -> CliCommand:
    """Import the module of a command."""
    return cast(CliCommand, import_module(f"{__name__}.{name.replace('-', '_')}"))


def carry_out(name: str, words: Sequence[str]) -> int:
    """Do a command's work and return the exit code; its folder may have been made by somebody else."""
    try:
        with plainly(sys.stdout, sys.stderr):
            chosen = command(name)
            return chosen.main(chosen.parser().parse_intermixed_args(words))
    except LlmexpError as error:
        raise type(error)(plain(str(error))) from error


def command_in(words: Sequence[str]) -> tuple[str, list[str]] | None:
    """Return the command's name, which stands first or after overrides and flags, and its words.

    Returns None where the words are a run's.
    """
    for place, word in _no_values(words):
        if word in COMMAND_NAMES:
            return word, [*words[:place], *words[place + 1 :]]
        if "=" not in word and not word.startswith("-"):
            return None
    return None


def _no_values(words: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield each word with its place, apart from the values of flags."""
    return ((place, word) for place, word in enumerate(words) if not (place and words[place - 1] in _WITH_VALUE))
