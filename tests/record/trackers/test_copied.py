from __future__ import annotations

import secrets
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from llmexp.record.trackers.content import read
from llmexp.record.trackers.copied import MARK, is_copied, place_of, put, scratch


def copy(folder, beside: Path, text: str) -> None:
    written = beside / secrets.token_hex(8)
    written.mkdir()
    (written / f"{text}.txt").write_text(text)
    put(written, read(folder), "mine", beside)


def test_a_copy_is_known_by_its_mark_alone(make_run, outputs):
    folder = make_run()
    assert not is_copied("mine", folder)
    with scratch("mine", outputs) as beside:
        copy(folder, beside, "a")
    place = place_of("mine", read(folder))
    assert place == outputs / "mine" / "main" / folder.path.name
    assert is_copied("mine", folder)
    assert not is_copied("yours", folder)
    for text in ("", "[]", "{}", '{"digest": "another"}'):
        (place / MARK).write_text(text)
        assert not is_copied("mine", folder)


def test_drivers_that_copy_a_run_at_once_leave_one_whole_copy(make_run, outputs):
    folder = make_run()
    with scratch("mine", outputs) as beside, ThreadPoolExecutor(4) as drivers:
        list(drivers.map(lambda number: copy(folder, beside, str(number)), range(40)))
        assert list(beside.iterdir()) == []
    place = place_of("mine", read(folder))
    assert len(list(place.glob("*.txt"))) == 1
    assert is_copied("mine", folder)


def test_what_could_not_be_put_in_its_place_is_removed(make_run, outputs):
    folder = make_run()
    (outputs / "mine").write_text("a file where the tracker's folder would be")
    with pytest.raises(OSError, match="mine"), scratch("mine", outputs) as beside:
        copy(folder, beside, "a")
    assert sorted(path.name for path in outputs.iterdir()) == ["main", "mine"]
