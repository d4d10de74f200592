"""The steps of a training loop that is not ours: timed from one report to the next, on the device's clock, until the window is complete."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from llmexp.measure.clock import Clock, Mark, unix_s
from llmexp.record.samples import StepSample


class MeasuredError(BaseException):
    """All steps are measured: unwinds the program past its own handlers of Exception."""


class Sink(Protocol):
    """A file, or what passes lines on as well."""

    def write(self, text: str, /) -> object:
        """Take a line."""

    def flush(self) -> object:
        """Keep nothing back."""


@dataclass(frozen=True)
class Reader:
    """How a rank reads its clock and its memory, waits for its peers, and what is to stand around its window."""

    clock: Clock
    memory_bytes: Callable[[], int]
    meet: Callable[[], None]
    around: AbstractContextManager[object]


@dataclass(frozen=True)
class _Pending:
    step: int
    marks: tuple[Mark, Mark]
    positions: int
    loss: Any
    memory_bytes: int


class ReportedSteps:
    """Writes a line of samples.<rank>.jsonl for each reported step as soon as the device has finished it."""

    def __init__(self, warmup_steps: int, steps: int, reader: Reader, file: Sink) -> None:
        self.reported, self.window_wall_s, self._start_s = 0, 0.0, 0.0
        self._warmup_steps, self._all_steps = warmup_steps, warmup_steps + steps
        self._reader, self._file = reader, file
        self._origin = self._last = reader.clock.mark()
        self._of_day = (self._origin, time.time())
        self._pending: deque[_Pending] = deque()
        self._window = ExitStack()

    def report(self, positions: int, loss: Any) -> None:
        """Take a step that is complete; raises MeasuredError after the window's last."""
        if isinstance(loss, torch.Tensor):
            loss = loss.detach().to("cpu", non_blocking=True)
        mark = self._reader.clock.mark()
        self._pending.append(_Pending(self.reported, (self._last, mark), positions, loss, self._reader.memory_bytes()))
        self._last = mark
        self.reported += 1
        if self.reported in (self._warmup_steps, self._all_steps):
            self._begin_or_end()
        self._write_finished()
        if self.reported == self._all_steps:
            raise MeasuredError

    def _begin_or_end(self) -> None:
        """At both ends of the window the device is waited for; at its beginning the peers too."""
        self._reader.clock.synchronize()
        if self.reported == self._all_steps:
            self.window_wall_s = time.perf_counter() - self._start_s
            self._window.close()
            # Nobody leaves while a peer may still wait for it in a collective.
            self._reader.meet()
            return
        self._reader.meet()
        self._window.enter_context(self._reader.around)
        self._start_s, self._last = time.perf_counter(), self._reader.clock.mark()
        self._of_day = (self._last, time.time())

    def _write_finished(self) -> None:
        while self._pending and self._pending[0].marks[1].passed():
            self._file.write(self._sample(self._pending.popleft()).model_dump_json() + "\n")
        self._file.flush()

    def _sample(self, done: _Pending) -> StepSample:
        start, end = done.marks
        return StepSample(
            index=done.step,
            warmup=done.step < self._warmup_steps,
            t_start_s=start.seconds_since(self._origin),
            t_end_s=end.seconds_since(self._origin),
            positions=done.positions,
            real_tokens=done.positions,
            loss=float(done.loss),
            at_s=unix_s(end, self._of_day),
            memory_bytes=done.memory_bytes,
        )
