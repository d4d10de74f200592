"""The file of a search's probes in a repeat's folder: a line for each load point, written before it is measured."""

from __future__ import annotations

from pathlib import Path

from llmexp.errors import RecordError
from llmexp.record.reading import read_text
from llmexp.serving.plan.serving_plan import LoadPoint


def probes_path(repeat: Path) -> Path:
    """Return the file's path."""
    return repeat / "probes.0.jsonl"


def read_probes(repeat: Path) -> list[LoadPoint]:
    """Read the probes, none where there is no file; a line that a kill cut off is not read.

    Raises RecordError where the file is one of something else.
    """
    path = probes_path(repeat)
    if not path.exists():
        return []
    try:
        return [LoadPoint.model_validate_json(line) for line in read_text(path).split("\n")[:-1]]
    except (OSError, ValueError) as error:
        raise RecordError(f"{path} holds no probes of a search: {error}") from None
