"""The order in which a sweep's commands named its runs, which the names of their folders do not tell."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Sequence
from pathlib import Path

from llmexp.record.folder import RunFolder
from llmexp.record.reading import read_json
from llmexp.record.writing import write_atomically

ORDER = ".order.json"


def note_order(runs: Sequence[RunFolder]) -> None:
    """Note the order of a command's runs behind that of earlier commands; they lie in one sweep's folder.

    A folder that cannot be written costs the order alone.
    """
    sweep = runs[0].path.parent
    known = _read(sweep)
    noted = list(dict.fromkeys([*known, *(run.path.name for run in runs)]))
    if noted != known:
        with contextlib.suppress(OSError):
            write_atomically(sweep / ORDER, json.dumps(noted) + "\n")


def waiting(sweep: Path, begun: Collection[Path]) -> list[Path]:
    """Return the folders that runs of a sweep's commands will have, without those that have begun."""
    return [sweep / name for name in _read(sweep) if sweep / name not in begun]


def in_sweeps_order(runs: Sequence[RunFolder]) -> list[RunFolder]:
    """Return runs sweep by sweep as they come, those of each in its order; others of it follow as they came."""
    sweeps = dict.fromkeys(run.path.parent for run in runs)
    places = {
        sweep: (number, {name: place for place, name in enumerate(_read(sweep))}) for number, sweep in enumerate(sweeps)
    }

    def place_of(run: RunFolder) -> tuple[int, int]:
        number, order = places[run.path.parent]
        return number, order.get(run.path.name, len(order))

    return sorted(runs, key=place_of)


def _read(sweep: Path) -> list[str]:
    try:
        found = read_json(sweep / ORDER)
    except (OSError, ValueError):
        return []
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []
