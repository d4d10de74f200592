"""The timing of a training loop that is not llmexp's own: each step lasts from one report to the next."""

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
    """All steps are measured; as a BaseException it ends the program past its own handlers of Exception."""


class Sink(Protocol):
    """A file, or another object that takes lines."""

    def write(self, text: str, /) -> object:
        """Take a line."""

    def flush(self) -> object:
        """Pass on all lines that are still buffered."""


@dataclass(frozen=True)
class Reader:
    """A rank's access to its clock, its memory and its peers, and the context that is entered around its window."""

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
    """A writer of samples.<rank>.jsonl: each reported step gets its line once the device has finished the step."""

    def __init__(self, warmup_steps: int, steps: int, reader: Reader, file: Sink) -> None:
        self.reported, self.window_wall_s, self._start_s = 0, 0.0, 0.0
        self._warmup_steps, self._all_steps = warmup_steps, warmup_steps + steps
        self._reader, self._file = reader, file
        self._origin = self._last = reader.clock.mark()
        self._of_day = (self._origin, time.time())
        self._pending: deque[_Pending] = deque()
        self._window = ExitStack()

    def report(self, positions: int, loss: Any) -> None:
        """Take note of a complete step; raise MeasuredError after the last step of the window."""
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
        """Begin or end the window; at both ends wait for the device and the peers."""
        self._reader.clock.synchronize()
        if self.reported == self._all_steps:
            self.window_wall_s = time.perf_counter() - self._start_s
            self._window.close()
            # No rank leaves while a peer may still wait for it in a collective.
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
