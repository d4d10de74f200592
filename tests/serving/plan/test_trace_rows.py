"""The forms of traces, by files with the header, the decimals and the line ends of those that are published."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmexp.errors import ConfigError
from llmexp.serving.plan.trace_rows import Recorded, read_rows

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
MOONCAKE = '{"timestamp": 0, "input_length": 700, "output_length": 5, "hash_ids": [0, 1]}\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "trace"


def rows(file: Path, text: str) -> tuple[str, list[Recorded]]:
    file.write_text(text, newline="")
    form, found = read_rows(file)
    return form, list(found)


def test_azures_trace_of_2023_has_seven_decimals(file: Path) -> None:
    form, found = rows(file, f"{AZURE}2023-11-16 23:59:59.9999990,40,8\r\n2023-11-17 00:00:01.5000009,3,7")
    assert form == "Azure"
    assert found[1].time_us - found[0].time_us == 1_500_001
    assert [tuple(each[1:]) for each in found] == [(40, 8, (), 2), (3, 7, (), 3)]


def test_azures_trace_of_2024_has_a_zone_and_whole_seconds_without_decimals(file: Path) -> None:
    text = f"{AZURE}2024-05-10 00:00:00.009930+00:00,20,5\n2024-05-10 00:00:01+00:00,20,5\n"
    _, found = rows(file, text)
    assert found[1].time_us - found[0].time_us == 990_070
    assert rows(file, text.replace("+00:00", ""))[1] == found


def test_mooncakes_trace_has_milliseconds_and_blocks(file: Path) -> None:
    later = '{"hash_ids": [0, 2], "timestamp": 3000, "input_length": 600, "output_length": 1, "type": "text"}\n'
    form, found = rows(file, MOONCAKE + later)
    assert form == "Mooncake"
    assert found == [Recorded(0, 700, 5, (0, 1), 1), Recorded(3_000_000, 600, 1, (0, 2), 2)]


@pytest.mark.parametrize(
    "text",
    [
        "due_s,prompt_tokens,output_tokens\n0.25,10,2\n1.5,20,3\n",
        'who,output_tokens,"prompt_tokens", due_s\n"a, b",2,10,0.25\nc,3.0,20,1.5\n',
        '{"due_s":0.25,"prompt_tokens":10,"output_tokens":2}\n{"due_s":1.5,"prompt_tokens":20,"output_tokens":3}\n',
    ],
)
def test_an_own_trace_is_a_table_or_lines_of_json(file: Path, text: str) -> None:
    form, found = rows(file, text)
    assert form == "own"
    assert found == [Recorded(250_000, 10, 2, (), 2 - (text[0] == "{")), Recorded(1_500_000, 20, 3, (), found[1].line)]


def test_rows_are_read_as_they_are_asked_for(file: Path) -> None:
    file.write_text(MOONCAKE + "broken")
    _, found = read_rows(file)
    assert next(found).prompt_tokens == 700
    with pytest.raises(ConfigError):
        next(found)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            f"{AZURE}2023-11-16 18:00:00,1,1\n2023-11-16 18:00:0x,1,1\n",
            "3: TIMESTAMP=2023.*0x: expected a date and",
        ),
        (f"{AZURE}2023-11-16 18:00:00,1.5,1\n", "2: ContextTokens=1.5: expected a whole number of tokens"),
        (f"{AZURE}2023-11-16 18:00:00,-1,1\n", "2: ContextTokens=-1: expected a whole number"),
        (f"{AZURE}2023-11-16 18:00:00,1,\n", "2: GeneratedTokens=: expected a whole number"),
        (f"{AZURE}2023-11-16 18:00:00,1\n", "2: a row of 2 cells below 3 columns"),
        (f'{AZURE}"2023,1,1\n', "2: no CSV: "),
        (
            f"{AZURE}2023-11-16 18:00:01,1,1\n2023-11-16 18:00:00,1,1\n",
            "3: TIMESTAMP=2023-11-16 18:00:00 lies before the request above it",
        ),
        (MOONCAKE + "[]\n", "2: expected an object, not list"),
        (MOONCAKE + '{"timestamp": 1\n', "2: not JSON: "),
        (MOONCAKE + '{"timestamp": 1, "input_length": 2}\n', "2: output_length is missing"),
        (MOONCAKE.replace("700", "true"), "1: input_length=True: expected a whole number"),
        (MOONCAKE.replace("700", "NaN"), "1: input_length=nan: expected a whole number"),
        (MOONCAKE.replace('p": 0', 'p": null'), "1: timestamp=None: expected milliseconds"),
        (MOONCAKE.replace("[0, 1]", "[0, 1.5]"), "1: hash_ids: expected a list of whole numbers"),
        ("time,tokens\n1,2\n", "2: expected TIMESTAMP, ContextTokens, .*, not time, tokens"),
        (AZURE, "1: expected TIMESTAMP, .*, not a header alone"),
        ('{"a": 1}', "1: expected TIMESTAMP, .*, not a$"),
    ],
)
def test_a_broken_line_is_named_with_what_is_wrong(file: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=rf"^serve\.trace\.file: .*trace:{said}"):
        rows(file, text)


def test_an_empty_file_is_told_what_it_may_hold(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"trace is empty: expected TIMESTAMP, ContextTokens, GeneratedTokens; or"):
        rows(file, "")
