"""Short names for users' own programs: the file, and those of its options that not all of its runs share."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import PurePath

OPTION = re.compile(r"--?[A-Za-z]")
# The longest that one option with its value, and a whole name, may be.
OPTION_CHARACTERS, NAME_CHARACTERS = 32, 60


def short_names(commands: Sequence[str]) -> dict[str, str]:
    """Map each command to its name, with the shortest names that tell all of these commands apart."""
    found = next((names for names in _candidates(commands) if len(set(names)) == len(commands)), commands)
    return dict(zip(commands, found, strict=True))


def _candidates(commands: Sequence[str]) -> Iterator[list[str]]:
    programs, options = zip(*(_parts(command) for command in commands), strict=True) if commands else ((), ())
    files = _files(programs)
    shared: dict[str, set[str]] = {}
    for program, each in zip(programs, options, strict=True):
        shared[program] = shared.get(program, set(each)).intersection(each)
    own = [
        [option for option in each if option not in shared[program]]
        for program, each in zip(programs, options, strict=True)
    ]
    short = [[_cut(option, OPTION_CHARACTERS) for option in each] for each in own]
    joined = [" ".join([file, *each]) for file, each in zip(files, short, strict=True)]
    yield [_cut(name, NAME_CHARACTERS) for name in joined]
    yield joined
    for full in (own, options):
        yield [" ".join([file, *each]) for file, each in zip(files, full, strict=True)]


def _parts(command: str) -> tuple[str, list[str]]:
    """Split a command into its file or module and its options, each with its values."""
    words = shlex.split(command)
    program, *rest = words[words[0] == "-m" :]
    options: list[str] = []
    for word in rest:
        if options and OPTION.match(options[-1]) and "=" not in options[-1] and not OPTION.match(word):
            options[-1] += f" {word}"
        else:
            options.append(word)
    return program, options


def _files(programs: Sequence[str]) -> list[str]:
    """Return the files' names, with as many parent folders as are needed to tell files of one name apart."""
    paths = [PurePath(program).parts for program in programs]
    ends = (["/".join(path[-depth:]) for path in paths] for depth in range(1, max(map(len, paths), default=0) + 1))
    return next((names for names in ends if len(set(names)) == len(set(programs))), list(programs))


def _cut(text: str, characters: int) -> str:
    """Shorten a text by leaving out its middle, because values differ at their ends."""
    half = characters // 2
    return text if len(text) <= characters else f"{text[: half - 1]}…{text[-half:]}"
