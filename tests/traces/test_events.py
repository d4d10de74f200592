"""Reading: whatever a file's form, its events are the same; a damaged one is one clear error, or said to be cut off."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest

from llmexp.errors import TraceError
from llmexp.traces import events, parsing
from llmexp.traces.events import read_trace


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "PART_BYTES", 300)


def fill(made, number: int = 200) -> None:
    for index in range(number):
        made.operator("aten::mm", 10.0 * index, 10.0 * index + 5.25, **{"Input Dims": [[2, 3], [3, 4]]})
        made.kernel('a kernel "{},{" of a template<}, {>', 10.0 * index + 1, 10.0 * index + 4.125, 10.0 * index)


def rows(path: Path) -> list[tuple[str, object, int, int]]:
    trace = read_trace(path)
    tables = (trace.device, trace.launches, trace.operators)
    columns = [(table.name, table.lane, table.begin, table.end) for table in tables]
    return [
        (trace.names[name], trace.lanes[lane], begin, end)
        for each in columns
        for name, lane, begin, end in zip(*(column.tolist() for column in each), strict=True)
    ]


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("indent", [None, 0, 1, 2])
@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_every_form_of_the_same_events_reads_alike(made, name: str, indent: int | None) -> None:
    fill(made)
    trace = read_trace(made.file(name, indent))
    assert (len(trace.operators), len(trace.device), len(trace.launches)) == (200, 200, 200)
    assert trace.operators.end.tolist() == [10_000 * index + 5250 for index in range(200)]
    assert not trace.truncated


@pytest.mark.usefixtures("small_parts")
def test_a_bare_list_of_events_and_lists_after_it_are_read(made) -> None:
    fill(made)
    bare, more = made.folder / "bare.json", made.folder / "more.json"
    bare.write_text(json.dumps(made.events))
    devices = [{"id": number, "name": "x, {}"} for number in range(100)]
    more.write_text(json.dumps({"deviceProperties": devices, "traceEvents": made.events, "others": [{"a": devices}]}))
    assert rows(bare) == rows(more) == rows(made.file())


def test_a_file_of_several_gzip_members_is_one_text(made) -> None:
    fill(made)
    text = made.file().read_bytes()
    parts = made.folder / "parts.json.gz"
    parts.write_bytes(gzip.compress(text[:5000]) + gzip.compress(text[5000:]))
    assert rows(parts) == rows(made.file())


@pytest.mark.parametrize("offset_us", [0, 4_578_163_665_929, 1_712_195_495_505_583])
def test_times_are_whole_nanoseconds_whatever_the_clock(made, offset_us: int) -> None:
    rng = random.Random(1)
    times = sorted(rng.sample(range(10**9), 500))
    text = ",\n".join(
        f'{{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "dur": 0.001, '
        f'"ts": {offset_us + at // 1000}.{at % 1000:03}}}'
        for at in times
    )
    path = made.folder / "t.json"
    path.write_text(f'{{"traceEvents": [{text}]}}')
    assert read_trace(path).operators.begin.tolist() == [offset_us * 1000 + at for at in times]


@pytest.mark.usefixtures("small_parts")
def test_numbers_that_are_none_are_taken_as_the_profiler_writes_them(made) -> None:
    fill(made, 20)
    path = made.file()
    path.write_text(path.read_text().replace('"stream": 7', '"stream": 7, "blocks per SM": inf, "warps per SM": -nan'))
    assert len(read_trace(path).device) == 20


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_that_was_cut_off_gives_what_it_has_and_says_so(made, packed: bool) -> None:
    fill(made)
    whole = made.file("trace.json.gz" if packed else "trace.json")
    cut = made.folder / f"cut{whole.suffix}"
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size * 3 // 4])
    trace = read_trace(cut)
    assert trace.truncated
    assert 100 < len(trace.operators) < 200


def test_events_without_usable_times_are_left_out_and_counted(made) -> None:
    fill(made, 3)
    for odd in ({"ts": None}, {"ts": "soon"}, {"ts": 1.0, "dur": -3}, {"ts": 1, "name": None}, {"ts": 1e300}):
        made.events.append({"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "dur": 1} | odd)
    made.events.append({"ph": ["X"], "cat": {}, "name": "a"})
    made.events.append({"ph": "X", "cat": "cpu_op", "name": "a", "ts": 2**52 + 1, "dur": 2**52 + 1})
    trace = read_trace(made.file())
    assert (len(trace.operators), trace.odd_events) == (3, 7)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "no list named traceEvents"),
        (b"hello", "no list named traceEvents"),
        (b'{"traceEvents": []}', "no events"),
        (b'{"traceEvents": [{"ph": "M"}]}', "no events"),
        (b'{"traceEvents": [' + b'{"a": ' * 5000, "no events"),
        (b"\x1f\x8bno gzip", "damaged gzip"),
        (b'{"traceEvents": [' + b'{"ph": "X", "cat": "cpu_op", ' + b"\xff" * 100, "no events"),
    ],
)
def test_what_is_no_trace_is_one_clear_error(tmp_path: Path, text: bytes, why: str) -> None:
    path = tmp_path / "odd.json"
    path.write_bytes(text)
    with pytest.raises(TraceError, match=why) as error:
        read_trace(path)
    assert str(path) in str(error.value)


def test_an_event_without_end_is_damage(made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "LONGEST_EVENT_BYTES", 3 * parsing.PART_BYTES)
    path = made.folder / "endless.json"
    path.write_text('{"traceEvents": [{"name": "' + "a" * 5 * parsing.PART_BYTES)
    with pytest.raises(TraceError, match="damaged"):
        read_trace(path)


def test_more_events_than_fit_are_refused(made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MOST_EVENTS", 100)
    fill(made)
    with pytest.raises(TraceError, match="more than 100 events"):
        read_trace(made.file())


def test_a_missing_file_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be read: No such file"):
        read_trace(tmp_path / "none.json")
