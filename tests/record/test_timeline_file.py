"""A run's timeline.json, which its picture is drawn from."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmexp.errors import RecordError
from llmexp.record.folder import RunFolder
from llmexp.record.timeline import COMPUTATION, PHASE, Timeline, read_timeline, write_timeline

FOUND = Timeline(
    "rank0.json.gz",
    "step 2 of 2",
    12.5,
    {(PHASE, "forward"): [(0.0, 5.0), (6.25, 1.000001)], (COMPUTATION, "QKV"): [(0.0, 2.0)]},
)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert read_timeline(folder) is None
    write_timeline(folder, FOUND)
    assert read_timeline(folder) == FOUND


@pytest.mark.parametrize("text", ["", "{", "[]", '{"source": 1}', '{"source": "", "step": "", "length_ms": 1}'])
def test_a_damaged_one_is_one_line(tmp_path: Path, text: str) -> None:
    folder = RunFolder(tmp_path)
    folder.timeline_path.write_text(text)
    with pytest.raises(RecordError, match=r"timeline\.json is no timeline of this llmexp: ") as error:
        read_timeline(folder)
    assert "\n" not in str(error.value)
