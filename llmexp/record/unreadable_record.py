"""Error messages for a file that this llmexp cannot read, because it is damaged or another version's.

They say which file it is, what is wrong, who wrote it and what to do.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from llmexp.errors import DamagedError, RecordError
from llmexp.record.reading import OddFileError, parsed, read_json, read_text
from llmexp.version import __version__


def unreadable_record(path: Path, kind: str, error: Exception) -> RecordError:
    """Return a one-line error for a file of a run or a sweep that is not of the `kind` that this version writes."""
    if isinstance(error, FileNotFoundError):
        return DamagedError(f"{path} is missing: {_mended(path)}")
    if _is_no_json(error):
        return DamagedError(f"{path} is not a {kind}, it is damaged: {_wrong(error)}; {_mended(path)}")
    writer = _writer(path)
    which = "that version" if writer else "the version that wrote it"
    by = f"llmexp {writer} wrote it" if writer else "it does not say which version of llmexp wrote it"
    todo = f"read it with {which}, or move {path.parent} away and start again"
    return RecordError(f"{path} is not a {kind} of this llmexp, {__version__}: {_wrong(error)}; {by}: {todo}")


def _is_no_json(error: Exception) -> bool:
    """Tell whether the file is not JSON, so that no version could have written it."""
    if isinstance(error, ValidationError):
        return error.errors()[0]["type"] == "json_invalid"
    return isinstance(error, json.JSONDecodeError | UnicodeDecodeError | OddFileError)


def _mended(path: Path) -> str:
    """Say what repairs a damaged file of a run, with the run's command where the other file has it."""
    again = "measures the run again" if path.name == "result.json" else "writes it again"
    try:
        return f"the same command {again}: {_command_beside(path)}"
    except (OSError, ValueError, KeyError, TypeError):
        return f"the same command {again}"


def _command_beside(path: Path) -> str:
    """Return the run's command by its other file; raises OSError, ValueError, KeyError or TypeError."""
    if path.name == "plan.json":
        return str(read_json(path.parent / "result.json")["command"])
    return str(read_json(path.parent / "plan.json")["rerun_command"])


def _wrong(error: Exception) -> str:
    """Name the first thing that is wrong, with its place in the file."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        return f"{place}: {first['msg']}" if place else first["msg"]
    if isinstance(error, KeyError):
        return f"it has no {error.args[0]!r}"
    return str(error).partition("\n")[0] or repr(error)


def _writer(path: Path) -> str | None:
    """Return the version that the file names, in its JSON object or in the last of several lines.

    Older results name it among the libraries.
    """
    try:
        text = read_text(path)
    except (OSError, ValueError):
        return None
    for part in (text, text.strip().rpartition("\n")[2]):
        found = _told(part)
        if found:
            return found
    return None


def _told(text: str) -> str | None:
    try:
        record: Any = parsed(text)
        return str(record.get("written_by") or record["environment"]["distributions"]["llmexp"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
