"""Names that tell a run from others, made of the words of its command that say what it measures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from llmexp.record.program_names import short_names

# Sections of the configuration that say where and how a run is recorded, not what it measures.
NOT_MEASURED = ("node", "tracking", "sweep", "budget", "force", "rerun")
_PROGRAM = "engine.options.command="
# Model and method are shown beside the words, the experiment is the sweep's name, and the launcher changes nothing that
# is measured.
# A run's own name in its sweep tells it from others, though nothing is measured by it.
_NOT_NAMED = re.compile(
    r"\+*(?!sweep\.run_name=)((model|method|experiment|detach|engine\.python)=|"
    rf"({'|'.join(NOT_MEASURED)}|hydra)[=./])"
)


def distinguishing_overrides(overrides: Iterable[str], name_fields: Iterable[str]) -> list[str]:
    """Return those overrides of a run that say what it measures.

    Model and method are left out, and the other name fields.
    """
    shown = tuple(f"{name}=" for name in name_fields)
    words = [word for word in overrides if not _NOT_NAMED.match(word)]
    return [word for word in words if not word.lstrip("+").startswith(shown)]


def name_of(name_fields: Iterable[str], words: Iterable[str]) -> str:
    """Return the run's name: what it measures, and the words that tell it from others."""
    return " ".join((*name_fields, *words))


def apart(runs: Sequence[Sequence[str]]) -> list[str]:
    """Return for each run those of its words that not all of the runs share, with short names for programs."""
    shared = set(runs[0]).intersection(*runs) if runs else set()
    programs = list(
        dict.fromkeys(word for words in runs for word in words if word.startswith(_PROGRAM) and word not in shared)
    )
    commands = [word.removeprefix(_PROGRAM).strip("'\"") for word in programs]
    short = short_names(list(dict.fromkeys(commands)))
    named = {word: short[command] for word, command in zip(programs, commands, strict=True)}
    return [" ".join(named.get(word, word) for word in words if word not in shared) for words in runs]
