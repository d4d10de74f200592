"""Damaged and hostile traces: what can be read is read, the rest is counted or one clear error, in bounded memory."""

from __future__ import annotations

import gzip
import os
import random
import tracemalloc
from pathlib import Path

import pytest

from llmexp.errors import TraceError
from llmexp.record.ranges import MODULE, PHASE_END, STEP
from llmexp.traces import attribution, collectives, numbering, parsing
from llmexp.traces.breakdown import break_down, read_profile
from llmexp.traces.events import read_trace
from llmexp.traces.run import break_down_ranks

NUMBERS = (b"1e400", b"9" * 400, b"-1", b"18446744073709551615", b"null", b"[]", b"{}", b'"x"', b"true", b"NaN")


def fill(made, number: int = 60) -> bytes:
    """Write a step of many operators and kernels, and return the text."""
    made.range(STEP, 0, 10 * number)
    made.range(PHASE_END + "forward", 5 * number, 5 * number)
    for at in range(0, 10 * number, 10):
        made.range(MODULE + "Up", at, at + 9)
        made.operator("aten::mm", at + 1, at + 8, **{"Input Dims": [[2, 3], [3, 4]], "Input type": ["float", "float"]})
        made.kernel("gemm", 10_000 + at, 10_004 + at, launched=at + 2)
    return made.file().read_bytes()


def damaged(text: bytes, rng: random.Random) -> bytes:
    """Cut, flip, repeat, remove or replace something anywhere."""
    found, at = bytearray(text), rng.randrange(len(text))
    match rng.randrange(6):
        case 0:
            del found[at:]
        case 1:
            for _ in range(rng.randrange(1, 50)):
                found[rng.randrange(len(found))] = rng.randrange(256)
        case 2:
            found[at:at] = found[: rng.randrange(3000)]
        case 3:
            del found[at : at + rng.randrange(3000)]
        case 4:
            found[at:at] = b"[" * 50_000
        case _:
            digits = [
                place for place, byte in enumerate(found[:-1]) if byte == ord(" ") and found[place + 1 :][:1].isdigit()
            ]
            place = rng.choice(digits) + 1
            found[place : found.index(b"\n", place)] = rng.choice(NUMBERS) + b","
    return bytes(found)


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("part_bytes", [700, parsing.PART_BYTES])
def test_any_damage_is_read_around_or_one_clear_line(made, monkeypatch, seed: int, part_bytes: int) -> None:
    monkeypatch.setattr(parsing, "PART_BYTES", part_bytes)
    rng, path = random.Random(seed), made.folder / "damaged.json"
    text = damaged(fill(made), rng)
    path.write_bytes(text if rng.random() < 0.8 else gzip.compress(text)[: rng.randrange(20, 3000)])
    found = break_down_ranks([path])
    for rank in found.ranks:
        assert rank.compute_ns + rank.exposed_communication_ns + rank.exposed_copy_ns + rank.idle_ns == rank.window_ns
    assert found.ranks or (str(path) in found.remark and len(found.remark.splitlines()) == 1)


@pytest.mark.parametrize(
    "damage",
    [b'"ts": [[[', b"\xff\xfe{,", b"[" * 100_000, b'"' * 7, b'{"a":' * 50_000],
    ids=["an open list", "odd bytes", "lists in lists", "quotes", "objects in objects"],
)
def test_what_lies_around_a_damaged_place_is_kept_and_the_place_is_counted(made, damage: bytes) -> None:
    text = fill(made)
    middle = text.index(b'"name"', len(text) // 2)
    path = made.folder / "damaged.json"
    path.write_bytes(text[:middle] + damage + text[middle:])
    whole, found = read_trace(made.file()), read_trace(path)
    rows = [
        len(trace.operators) + len(trace.device) + len(trace.launches) + len(trace.ranges) for trace in (whole, found)
    ]
    assert rows[0] - 8 <= rows[1] < rows[0]
    assert found.odd_events > 0
    assert not found.truncated


def test_a_name_with_bytes_that_are_no_text_is_read(made) -> None:
    path = made.folder / "odd.json"
    path.write_bytes(fill(made).replace(b"gemm", b"ge\xffmm"))
    assert "ge\N{REPLACEMENT CHARACTER}mm" in read_trace(path).names


def test_types_with_bytes_that_are_no_text_are_unknown(made) -> None:
    path = made.folder / "odd.json"
    path.write_bytes(fill(made).replace(b'"float"', b'"fl\xff\xffat"'))
    found = break_down(read_profile(path))
    assert [(gemm.operator, gemm.dtype) for gemm in found.gemms] == [("aten::mm", "")]


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path, Path("/dev/zero")):
        with pytest.raises(TraceError, match="is not a file"):
            read_trace(path)


@pytest.mark.parametrize(
    "head", [b"", b'{"traceEvents": [', b'{"traceEvents": [{"name": "'], ids=["head", "list", "event"]
)
def test_a_packed_file_of_nothing_takes_little_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: bytes
) -> None:
    monkeypatch.setattr(parsing, "LONGEST_HEAD_BYTES", 2**26)
    monkeypatch.setattr(parsing, "LONGEST_EVENT_BYTES", 2**20)
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(head + b" " * 2**27, compresslevel=1))
    tracemalloc.start()
    with pytest.raises(TraceError, match=r"bomb.json.gz is (not a trace|damaged)"):
        read_trace(path)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 2**25


@pytest.mark.parametrize(
    ("module", "limit", "why"),
    [
        (numbering, "MOST_TEXT_BYTES", "more different names than are read"),
        (numbering, "MOST_LANES", "more different threads than are read"),
        (attribution, "MOST_STEPS", "more than 5 steps"),
        (attribution, "MOST_PHASES", "more than 5 phases"),
        (attribution, "MOST_PATHS", "more than 5 modules"),
        (collectives, "MOST_COLLECTIVES", "more than 5 different collectives"),
    ],
)
def test_more_than_any_run_has_is_one_clear_error(made, monkeypatch, module, limit: str, why: str) -> None:
    for number in range(20):
        at = 100 * number
        made.range(STEP, at, at + 90)
        made.range(f"{PHASE_END}{number}", at + 50, at + 50)
        made.range(f"{MODULE}{number}", at, at + 40)
        made.kernel(f"ncclDevKernel_{number}", 10_000 + at, 10_010 + at, launched=at + 1, thread=number)
    path = made.file()
    assert not break_down_ranks([path]).remark
    monkeypatch.setattr(module, limit, 5)
    assert why in break_down_ranks([path]).remark


def test_modules_in_modules_without_end_take_memory_by_their_number(made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attribution, "DEEPEST", 3)
    made.range(STEP, 0, 100)
    for depth in range(20):
        made.range(f"{MODULE}{depth % 2}", depth, 100 - depth)
    made.kernel("gemm", 200, 210, launched=50)
    made.range(PHASE_END + "forward", 90, 90)
    (module,) = break_down(read_profile(made.file())).modules
    assert module.path == ("0", "1", "0")
