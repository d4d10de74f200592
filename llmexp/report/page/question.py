"""What was asked: the command of a sweep, made again from the commands of its runs, and how its runs ended."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Sequence
from math import prod

from llmexp.record.plan import PROGRAM
from llmexp.report.row import OOM, Row

# Values that Hydra's commas separate as they are.
_SIMPLE = re.compile(r"[\w.+/:-]+")


def asked_command(rows: Sequence[Row]) -> str:
    """Return the sweep's command; an ellipsis stands for words that differ otherwise than by a sweep of commas."""
    commands = [row.words for row in rows if not row.is_control]
    if not commands:
        return ""
    return _swept(commands) or _shared(commands)


def _swept(commands: Sequence[Sequence[str]]) -> str:
    """Return the one command that these runs are the product of; empty where there is none."""
    overrides = [[word.partition("=") for word in command[len(PROGRAM) :]] for command in commands]
    keys = [[key for key, _, _ in words] for words in overrides]
    if any(each != keys[0] for each in keys):
        return ""
    values = [list(dict.fromkeys(words[place][2] for words in overrides)) for place in range(len(keys[0]))]
    several = [value for own in values if len(own) > 1 for value in own]
    distinct = {tuple(command) for command in commands}
    if prod(map(len, values)) != len(distinct) or not all(map(_SIMPLE.fullmatch, several)):
        return ""
    told = zip(overrides[0], values, strict=True)
    words = [f"{key}{sign}{','.join(own) if len(own) > 1 else value}" for (key, sign, value), own in told]
    return shlex.join([*PROGRAM, *words, *["-m"] * bool(several)])


def _shared(commands: Sequence[Sequence[str]]) -> str:
    kept = set(commands[0]).intersection(*commands)
    words = [shlex.quote(word) if word in kept else "…" for word in commands[0]]
    return " ".join(word for place, word in enumerate(words) if word != "…" or words[place - 1 : place] != ["…"])


def endings(rows: Sequence[Row]) -> str:
    """Return how many runs there are, and how they ended or stand."""
    states = Counter("out of memory" if row.state == OOM else row.state for row in rows)
    ended = ", ".join(f"{count} {state}" for state, count in states.most_common())
    return f"{len(rows)} run{'s' * (len(rows) != 1)}: {ended}"
