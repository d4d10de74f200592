"""The errors that a person sees form one tree.

LlmexpError
├── ConfigError    wrong input: one line, found before anything starts, exit code 2
│   └── DegreesError   degrees of parallelism that this model, batch or machine cannot have; a sweep leaves that run out
├── RecordError    a run's folder or the tracker cannot be read or written
│   └── DamagedError   a file of a run is missing or cut off; the same command mends it
├── BuildError     an engine's native code cannot be built on this machine
├── SlurmError     SLURM does not answer
├── TraceError     a profiler's trace cannot be read
└── ServerError    an inference server cannot be measured; the message ends with its log's last words
    ├── ServerDiedError      its process has ended
    ├── ServerNotReadyError  it runs, but does not answer
    └── ServerHungError      it served, and does not answer any more
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from llmexp.terms import meant_by

# How torch's CPU allocator, CUDA, cuBLAS, cuDNN, NCCL, glibc and C++ say that memory ran out.
NO_MEMORY = re.compile(r"can(?:'t|not) allocate memory|out of memory|STATUS_ALLOC_FAILED|std::bad_alloc", re.IGNORECASE)

# Letters of an error: a value that a person typed may have any number of them.
_LONGEST = 4000


class LlmexpError(Exception):
    """Base of every error that llmexp raises on purpose."""


class ConfigError(LlmexpError):
    """Wrong input; its message names the field, the value, why it cannot be, and what can."""


class DegreesError(ConfigError):
    """Degrees of parallelism that the model, the sequences or the machine cannot be cut by."""


class RecordError(LlmexpError):
    """A run's folder or the tracker cannot be read or written."""


class DamagedError(RecordError):
    """A file of a run is missing or cut off, whatever version wrote it; the same command mends it."""


class BuildError(LlmexpError):
    """An engine's native code cannot be built on this machine; the message says what is missing or where the log is."""


class SlurmError(LlmexpError):
    """SLURM does not answer, or does not do what it should; its jobs may go on."""


class TraceError(LlmexpError):
    """A profiler's trace is missing, damaged or none; the message says where."""


class ServerError(LlmexpError):
    """An inference server cannot be measured; the message is a line, and its note has the last lines of the log."""

    is_out_of_memory = False
    """Memory ran out, by the server's own words or the kernel's."""


class ServerDiedError(ServerError):
    """An inference server's process has ended; `code` is its exit code, -n where signal n ended it."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class ServerNotReadyError(ServerError):
    """An inference server runs, but has not answered its readiness route in time."""


class ServerHungError(ServerError):
    """An inference server that served sends nothing any more, and does not answer when it is asked."""


def in_one_line(text: str) -> str:
    """Return an error's text without what a terminal would obey, and shortened where a value in it is endless."""
    shown = "".join(char if char.isprintable() else "?" for char in text.replace("\n", "; "))
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST // 2]} ... {shown[-_LONGEST // 2 :]}"


def nearest(value: str, choices: Iterable[str]) -> str | None:
    """Return the choice that was probably meant, or None where nothing is close.

    A choice that is nearly the same comes first, then one that contains the value or is part of it, then a similar one.
    """
    by_lower = {choice.lower(): choice for choice in choices}
    typed = value.lower()
    parts = [choice for choice in by_lower if min(len(typed), len(choice)) > 1 and (typed in choice or choice in typed)]
    for among, cutoff in ((list(by_lower), 0.85), (parts, 0.0), (list(by_lower), 0.5)):
        if close := difflib.get_close_matches(typed, among, n=max(1, len(among)), cutoff=cutoff):
            # Of equally close ones the first choice.
            return by_lower[max((one for one in among if one in close), key=lambda one: _likeness(one, typed))]
    return None


def _likeness(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one, other).ratio()


def unknown(what: str, value: str, choices: Iterable[str]) -> ConfigError:
    """Build the error for a name that is not among `choices`; it says what was probably meant, then all choices."""
    listed = list(choices)
    return ConfigError(f"unknown {what} '{value}': {hint(what, value, listed)}choices are {', '.join(listed)}")


def hint(what: str, value: str, choices: Iterable[str]) -> str:
    """Say what to write for a word of another program, else which choice is nearest; return "" where there is neither.

    A text that is not empty ends in a blank, so that more can follow.
    """
    if meant := meant_by(what, value):
        return f"write {meant}; "
    guess = nearest(value, choices)
    return f"did you mean {guess}? " if guess else ""
