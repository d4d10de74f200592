"""What became of the load under which a server was profiled: profile.json of a repeat."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, NonNegativeFloat, ValidationError

from llmexp.errors import RecordError
from llmexp.record.reading import read_text
from llmexp.record.samples import Record

TRACES, REQUESTS = "trace", "profiled.jsonl"
"""In the folder of a repeat: what the profiler wrote, and a line for each request of the profiled load."""


class ProfiledLoad(Record):
    """The load, how long its server was profiled, and how fast it was meanwhile."""

    load: str = Field(description="the load point that was repeated, such as 4/s")
    requests: int = Field(description="answered wholly")
    windows_s: list[NonNegativeFloat] = Field(
        default_factory=list, description="how long the profiler was on, without what starting and ending it took"
    )
    output_tokens_per_s: float | None = Field(None, description="of the whole load, with the ends of the profiler")
    problem: str = Field("", description="why there is no whole profile")


def profiled_load_path(repeat: Path) -> Path:
    """Return where the record lies in the folder of a repeat."""
    return repeat / "profile.json"


def read_profiled_load(repeat: Path) -> ProfiledLoad | None:
    """Return the record of a repeat, None where it was not profiled; raises RecordError where it is damaged."""
    path = profiled_load_path(repeat)
    if not path.exists():
        return None
    try:
        return ProfiledLoad.model_validate_json(read_text(path), strict=False)
    except ValidationError as error:
        raise RecordError(f"{path} is no record of a profiled load: {error.errors()[0]['msg']}") from None
