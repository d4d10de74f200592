"""The repeats of a run that were begun, and which of them a later driver may keep.

A driver that measures repeats of other runs in between leaves an event at each repeat's begin and end. An interleaved
sweep that was interrupted goes on from these, because otherwise its last round would be worth all of its time. The
result says which driver measured which repeat: those of two drivers may be hours apart.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from llmexp.errors import RecordError
from llmexp.launch.stack import stack_digest
from llmexp.record.folder import WAITING, RunFolder
from llmexp.record.identity import process_identity
from llmexp.record.plan import RunPlan
from llmexp.record.result import RunStatus, Turn
from llmexp.record.samples import RankSummary
from llmexp.record.writing import force_to_disk, now

Order = Literal["run_by_run", "interleaved"]


class Turns:
    """The repeats of a run, of which the first `kept` were measured before this process drove it."""

    def __init__(self, plan: RunPlan, folder: RunFolder, order: Order) -> None:
        self._plan, self._folder, self.order = plan, folder, order
        self.begun = standing(plan, folder) if order == "interleaved" else []
        self.kept = len(self.begun)
        self._driver = self.begun[-1].driver + 1 if self.begun else 0
        self._began_at = ""

    @property
    def spent_s(self) -> float:
        """The time that all of them took."""
        return sum(turn.seconds for turn in self.begun)

    def forget(self) -> None:
        """Start anew: another attempt begins with the first repeat."""
        self.begun, self.kept, self._driver = [], 0, 0

    def begin(self, repeat: int) -> None:
        """Note that a repeat begins."""
        self._began_at = now()
        if self.order == "interleaved":
            self._folder.event("running", repeat=repeat, **process_identity())

    def end(self, repeat: int, well: bool) -> None:
        """Note that a repeat has ended; one that ended well stands from now on, also after a power failure."""
        turn = Turn(repeat=repeat, began_at=self._began_at, ended_at=now(), driver=self._driver)
        self.begun.append(turn)
        if well and self.order == "interleaved":
            force_repeat_to_disk(self._folder.repeat(repeat))
            stack = stack_digest(self._plan)
            self._folder.event(WAITING, turn=turn.model_dump(), stack=stack, **process_identity())


def standing(plan: RunPlan, folder: RunFolder) -> list[Turn]:
    """Return the whole repeats of an interrupted interleaved attempt that may be kept, from the first one on.

    They are of this host and this stack. There are none where the attempt has another ending than killed, and none
    with rerun=all.
    """
    try:
        earlier, events = folder.result(), folder.events()
    except RecordError:
        return []
    if plan.config.rerun == "all" or (earlier is not None and earlier.status is not RunStatus.KILLED):
        return []
    ended = _ended_here(events, stack_digest(plan))
    found: list[Turn] = []
    while (turn := ended.get(len(found))) and _is_whole(folder.repeat(len(found)), plan.processes):
        found.append(turn)
    return found


def _is_whole(repeat: Path, processes: int) -> bool:
    has_samples = all((repeat / f"samples.{rank}.jsonl").exists() for rank in range(processes))
    return has_samples and is_finished(repeat, processes)


def _ended_here(events: list[dict[str, Any]], stack: str) -> dict[int, Turn]:
    """Return the repeats by number that ended well and were not begun again since, on this host and stack."""
    ended: dict[int, Turn] = {}
    for event in events:
        turn = _turn(event)
        if turn and event.get("stack") == stack and event.get("host") == socket.gethostname():
            ended[turn.repeat] = turn
        elif event["status"] == "running":
            ended.pop(event.get("repeat", -1), None)
    return ended


def _turn(event: Mapping[str, Any]) -> Turn | None:
    try:
        return Turn.model_validate(event["turn"])
    except (KeyError, ValidationError):
        return None


def is_finished(repeat: Path, processes: int) -> bool:
    """Tell whether every rank of a repeat left its summary."""
    return all(summary(repeat / f"rank.{rank}.json") for rank in range(processes))


def summary(path: Path) -> RankSummary | None:
    """Return a rank's account of its end; None where it left none."""
    try:
        return RankSummary.model_validate_json(path.read_text())
    except (FileNotFoundError, ValidationError):
        return None


def force_repeat_to_disk(repeat: Path) -> None:
    """Force what ranks wrote to disk, so that no power failure takes it from under its result."""
    force_to_disk(path for pattern in ("samples.*", "rank.*") for path in repeat.glob(pattern))
