"""The rows of a recorded trace of requests, known by the names of its columns or keys, be it CSV or JSONL.

Azure's traces of 2023 and 2024 are CSV (github.com/Azure/AzurePublicDataset); Mooncake's are JSONL, with the blocks
that requests share (github.com/kvcache-ai/Mooncake, FAST25-release).
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from llmexp.errors import ConfigError
from llmexp.serving.plan.lines import numbered_lines

KEY = "serve.trace.file"
BLOCKS = "hash_ids"
MICROSECOND = timedelta(microseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TraceRow = Mapping[str, Any]


class Recorded(NamedTuple):
    """One request as it was recorded; `hash_ids` name the blocks of its prompt, where the trace has them."""

    time_us: int
    prompt_tokens: int
    output_tokens: int
    hash_ids: tuple[int, ...]
    line: int


@dataclass(frozen=True)
class Form:
    """The names by which a trace calls time, prompt's tokens and output's tokens, and what its times are."""

    name: str
    names: tuple[str, str, str]
    times: str
    microseconds: Callable[[Any], int]

    def request(self, row: TraceRow, line: int) -> Recorded:
        """Read a row; raises ValueError, which says what is wrong."""
        time, prompt, output = self.names
        return Recorded(
            _read(row, time, self.microseconds, self.times),
            _read(row, prompt, _tokens, "a whole number of tokens"),
            _read(row, output, _tokens, "a whole number of tokens"),
            _block_ids(row.get(BLOCKS)),
            line,
        )


def read_rows(path: Path) -> tuple[str, Iterator[Recorded]]:
    """Return the name of the trace's form, and its requests, which are read as they are asked for.

    Raises ConfigError with file and line for the first that is broken, or lies before the one above it.
    """
    lines = numbered_lines(path, KEY)
    first = next(lines, None)
    if first is None:
        raise ConfigError(f"{KEY}: {path} is empty: expected {EXPECTED}")
    rows = (_json if first[1].startswith("{") else _csv)(path, chain([first], lines))
    line, row = next(rows, (first[0], dict[str, Any]()))
    form = next((form for form in FORMS if set(form.names) <= row.keys()), None)
    if form is None:
        raise wrong(path, line, f"expected {EXPECTED}, not {', '.join(map(str, row))[:80] or 'a header alone'}")
    return form.name, _in_order(path, form, chain([(line, row)], rows))


def wrong(path: Path, line: int, why: str) -> ConfigError:
    """Build the error for a line of the trace."""
    return ConfigError(f"{KEY}: {path}:{line}: {why}")


def _in_order(path: Path, form: Form, rows: Iterator[tuple[int, TraceRow]]) -> Iterator[Recorded]:
    last_us: int | None = None
    for line, row in rows:
        try:
            each = form.request(row, line)
        except ValueError as error:
            raise wrong(path, line, str(error)) from None
        if last_us is not None and each.time_us < last_us:
            raise wrong(path, line, f"{form.names[0]}={row[form.names[0]]} lies before the request above it")
        last_us = each.time_us
        yield each


def _json(path: Path, lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, TraceRow]]:
    for line, text in lines:
        try:
            row = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise wrong(path, line, f"not JSON: {error}") from None
        if not isinstance(row, dict):
            raise wrong(path, line, f"expected an object, not {type(row).__name__}")
        yield line, row


def _csv(path: Path, lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, TraceRow]]:
    header: list[str] = []
    for line, text in lines:
        try:
            cells = [cell.strip() for cell in next(csv.reader([text], strict=True))]
        except csv.Error as error:
            raise wrong(path, line, f"no CSV: {error}") from None
        if not header:
            header = cells
        elif len(cells) == len(header):
            yield line, dict(zip(header, cells, strict=True))
        else:
            raise wrong(path, line, f"a row of {len(cells)} cells below {len(header)} columns")


def _read(row: TraceRow, name: str, reader: Callable[[Any], int], expected: str) -> int:
    if name not in row:
        raise ValueError(f"{name} is missing")
    try:
        return reader(row[name])
    except (ValueError, TypeError, OverflowError):
        raise ValueError(f"{name}={str(row[name])[:40]}: expected {expected}") from None


def _tokens(value: Any) -> int:
    number = _number(value)
    if number < 0 or not number.is_integer():
        raise ValueError
    return int(number)


def _number(value: Any) -> float:
    """Return the number of a CSV's cell or of a JSON value; raises ValueError or TypeError for any other."""
    if isinstance(value, bool) or not isfinite(number := float(value)):
        raise ValueError
    return number


def _clock(value: Any) -> int:
    """Return the microseconds of 2023-11-16 18:17:03.9799600, or of 2024-05-10 00:00:00.009930+00:00.

    The seventh decimal is left out.
    """
    time = datetime.fromisoformat(value)
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - EPOCH) // MICROSECOND


def _block_ids(value: Any) -> tuple[int, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(type(each) is int for each in value):
        raise ValueError(f"{BLOCKS}: expected a list of whole numbers")
    return tuple(value)


FORMS = (
    Form("Azure", ("TIMESTAMP", "ContextTokens", "GeneratedTokens"), "a date and a time", _clock),
    Form(
        "Mooncake",
        ("timestamp", "input_length", "output_length"),
        "milliseconds",
        lambda value: round(_number(value) * 1e3),
    ),
    Form("own", ("due_s", "prompt_tokens", "output_tokens"), "seconds", lambda value: round(_number(value) * 1e6)),
)
EXPECTED = "; or ".join(", ".join(form.names) for form in FORMS)
