"""The repeats of an interleaved run one by one: how fast each was, and how much of the host others took meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from llmexp.analysis.contention import read_machine
from llmexp.analysis.paired import RepeatInRound
from llmexp.errors import RecordError
from llmexp.record.result import RunResult, Turn
from llmexp.registry import get_task
from llmexp.report.row import Row

Rounds = Callable[[Any], Sequence[RepeatInRound]]


@dataclass(frozen=True)
class _Ended:
    """A result that was written, whose repeats are read once."""

    folder: Path
    ended_at: str
    row: Row = field(compare=False)
    result: RunResult = field(compare=False)


def rounds_of(row: Row) -> Sequence[RepeatInRound]:
    """Return the repeats in order of their rounds.

    There are none where the run was not interleaved, or its samples are gone or damaged.
    """
    result = row.result
    if result is None or result.order != "interleaved":
        return ()
    return _read(_Ended(row.folder.path, result.ended_at, row, result))


@lru_cache(maxsize=512)
def _read(ended: _Ended) -> tuple[RepeatInRound, ...]:
    result = ended.result
    turns = {turn.repeat: turn for turn in result.turns}
    try:
        found = [_repeat(ended.row, result, turns[number]) for number in range(result.repeats) if number in turns]
    except (OSError, RecordError, KeyError, TypeError, ValueError):  # files that are gone or damaged
        return ()
    known = tuple(repeat for repeat in found if repeat)
    return known if len(known) == result.repeats else ()


def _repeat(row: Row, result: RunResult, turn: Turn) -> RepeatInRound | None:
    """Read one repeat; None where it has no rate, or no sample of its host fell into its window."""
    task, folder = get_task(row.plan.config.task.name), row.folder.repeat(turn.repeat)
    rates = task.rates(row.plan, [task.read(folder, row.plan)])
    cpu = result.environment.get("cpu") or {}
    cores = cpu.get("usable_cores") or cpu.get("logical_cores")
    machine = read_machine(row.folder.system_path, [folder / "samples.0.jsonl"], cores or 0, 0)
    if not rates or not cores or machine.other_cores is None:
        return None
    return RepeatInRound(
        rate=rates[0].value,
        cores=cores,
        taken_cores=machine.other_cores + machine.stolen_cores,
        began_at=turn.began_at,
        ended_at=turn.ended_at,
        driver=(str(result.environment.get("host", "")), turn.driver),
    )
