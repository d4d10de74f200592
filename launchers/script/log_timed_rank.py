"""Times steps by the lines that a program prints, in Python or beneath it.

The first rank with a line that matches times the steps, and announces them to the others.
"""

from __future__ import annotations

import json
import threading
from typing import NoReturn, TextIO

from torch.distributed import Store  # type: ignore[attr-defined]

from llmexp.launchers.rank.frame import fail, leave
from llmexp.launchers.script.lines import Lines, StepLines
from llmexp.launchers.script.native_lines import NativeLines
from llmexp.launchers.script.passive_rank import Follower, store_for, told_by
from llmexp.launchers.script.program_run import ProgramRun, ReportError, ended_after, ended_unheard
from llmexp.measure import memory
from llmexp.measure.clock import HostClock
from llmexp.measure.reported import MeasuredError, Reader, ReportedSteps
from llmexp.record.printed import Output

HELD_BACK = (
    "the lines of several steps arrived at once, so that no step can be timed: let the program flush its standard "
    "output after every line"
)


class Announced:
    """Writes the timing rank's samples to its file, and announces them to the others."""

    def __init__(self, file: TextIO, store: Store) -> None:
        self._file, self._store, self._written = file, store, 0

    def write(self, line: str) -> None:
        """Write a sample."""
        self._file.write(line)
        self._store.set(f"step.{self._written}", line)
        self._written += 1

    def flush(self) -> None:
        """Flush the file, so that others can read its lines."""
        self._file.flush()


class Printed:
    """Hears the lines of this rank's program, and ends the process once the window is complete."""

    def __init__(self, program_run: ProgramRun, file: TextIO) -> None:
        self._witness, self._store = program_run, store_for(program_run)
        measure, reader = (
            program_run.plan.config.measure,
            Reader(HostClock(), memory.current_bytes(program_run.device), _meet_nobody, program_run.window()),
        )
        self._steps = ReportedSteps(measure.warmup_steps, measure.steps, reader, Announced(file, self._store))
        self._expects = StepLines(program_run.plan)
        self._leads: bool | None = None
        if program_run.rank.world_size > 1:
            threading.Thread(target=Follower(program_run, file).run, daemon=True).start()
        self._native = NativeLines(self._take_together)
        self._lines = Lines(self._take)

    def close(self) -> None:
        """Take the rest of what the program printed beneath Python."""
        self._native.close()

    def ended(self) -> NoReturn:
        """Handle a program that ended before the window was complete on this rank.

        Raises ReportError once it has ended on all ranks.
        """
        rank, ranks = self._witness.rank.index, range(self._witness.rank.world_size)
        self._store.set(f"ended.{rank}", json.dumps([self._steps.reported, self._lines.read, self._lines.last]))
        told = [json.loads(self._store.get(f"ended.{one}")) for one in ranks]
        raise ReportError(too_few(self._witness, told))

    def _take(self, line: str) -> None:
        told = self._expects(line)
        if told is None or not self._is_timed_here():
            return
        loss = self._expects.loss_of_new(told)
        if loss is None:
            return
        if not self._steps.reported:
            self._witness.look()
        batch = self._witness.plan.batch
        try:
            self._steps.report(batch.micro * batch.accumulation * self._witness.plan.config.data.seq_len, loss)
        except MeasuredError:
            self._end()

    def _take_together(self, lines: list[str]) -> None:
        """Take lines that arrived at one moment, in a thread of their own; they are one step's at most."""
        told = [groups for line in lines if (groups := self._expects(line))]
        try:
            if len({groups.get("step", str(index)) for index, groups in enumerate(told)}) > 1:
                raise ReportError(HELD_BACK)
            for line in lines:
                self._lines.see(line)
        except BaseException as error:
            fail(self._witness.rank, error)

    def _is_timed_here(self) -> bool:
        if self._leads is None:
            own = str(self._witness.rank.index)
            self._leads = self._store.compare_set("timed_by", "", own).decode() == own
        return self._leads

    def _end(self) -> NoReturn:
        """End last, because a peer may be in a collective with this rank, and at once.

        The program's clean-up may use a collective.
        """
        rank = self._witness.rank
        self._store.set("window_wall_s", str(self._steps.window_wall_s))
        rank.write("rank", self._witness.summary(self._steps.window_wall_s, told_by(rank.index)))
        self._store.wait([f"done.{one}" for one in range(rank.world_size) if one != rank.index])
        leave(0)


def too_few(program_run: ProgramRun, told: list[tuple[int, int, str]]) -> str:
    """Say why the window is not complete, from each rank's steps, lines and last line."""
    measure = program_run.plan.config.measure
    reported, read = max(steps for steps, _, _ in told), sum(lines for _, lines, _ in told)
    if reported:
        return ended_after(reported, measure.warmup_steps + measure.steps)
    rank, (_, _, last) = max(enumerate(told), key=lambda one: one[1][1])
    return ended_unheard(program_run.plan, Output(read, last, rank))


def _meet_nobody() -> None:
    """Do not wait: the rank that prints is not the one that waits."""
