"""The measured loop runs warm-up steps and then a window of steps, with one sample per step, for every engine."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, TextIO, runtime_checkable

import torch

from llmexp.measure.batch import MicroBatch
from llmexp.measure.clock import Clock, Mark, unix_s
from llmexp.record.samples import StepSample, digest_text

# The mixing steps of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), as signed numbers: int64 wraps around.
_GOLDEN, _FIRST, _SECOND = -0x61C8864680B583EB, -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15


class Trainable(Protocol):
    """An engine's training step, cut where phases are timed.

    `backward` and `step` are called once per pass, as DeepSpeed requires.
    """

    def forward(self, batch: MicroBatch) -> torch.Tensor:
        """Return the loss of one pass, a scalar on the device."""

    def backward(self, loss: torch.Tensor) -> None:
        """Compute gradients of one pass."""

    def step(self) -> None:
        """Update the parameters where this pass completes a step."""


@runtime_checkable
class Scheduled(Protocol):
    """A training step whose passes the engine orders itself, as the stages of a pipeline must."""

    def train(self, passes: Sequence[MicroBatch], mark: Callable[[str], None]) -> Sequence[torch.Tensor]:
        """Do a whole step, `mark` the end of each phase, and return the loss of each pass, a scalar on the device."""


def train_step(
    engine: Trainable | Scheduled, passes: Sequence[MicroBatch], mark: Callable[[str], None]
) -> Sequence[torch.Tensor]:
    """Do one step on `passes`, pass by pass unless the engine orders them; call `mark` at the end of each phase."""
    if isinstance(engine, Scheduled):
        return engine.train(passes, mark)
    losses = []
    for batch in passes:
        loss = engine.forward(batch)
        losses.append(loss.detach())
        mark("forward")
        engine.backward(loss)
        # This frees the graph of the loss, so that the update can use its memory.
        del loss
        mark("backward")
        engine.step()
        mark("optimizer")
    return losses


class Updates(Protocol):
    """What sets the learning rate of each step, and tells what its update went by."""

    def begin(self) -> None:
        """Set the rate of the next step."""

    def rate(self) -> float:
        """Return the rate that the optimizer has."""

    def gradient_norm(self) -> torch.Tensor | float | None:
        """Return the norm of the last step's gradient before clipping, or None."""

    def scaled_step(self) -> tuple[float, bool] | None:
        """Return the factor of the last step's losses, and whether its update was skipped; None without a factor."""


TakeStep = Callable[[Trainable | Scheduled, Sequence[MicroBatch], Callable[[str], None]], Sequence[torch.Tensor]]


@dataclass(frozen=True)
class _Pending:
    """A step whose work may still be running on the device."""

    step: int
    warmup: bool
    batches: Sequence[MicroBatch]
    loss: torch.Tensor
    sequences: torch.Tensor | None
    lr: float | None
    gradient_norm: torch.Tensor | float | None
    scaled: tuple[float, bool] | None
    marks: Sequence[tuple[str, Mark]]
    memory_bytes: int


class StepLoop:
    """A loop that runs steps and writes a line of samples.<rank>.jsonl for each once the device has finished it."""

    def __init__(
        self, trainable: Trainable | Scheduled, clock: Clock, file: TextIO, memory_bytes: Callable[[], int]
    ) -> None:
        self.trainable, self._clock, self._memory_bytes = trainable, clock, memory_bytes
        self._file = file
        self._pending: deque[_Pending] = deque()
        self._origin = clock.mark()
        self._of_day = (self._origin, time.time())
        self.taken = 0
        self.phases = True
        self.digests = False
        self.take_step: TakeStep = train_step
        self.updates: Updates | None = None
        self.at_phase_end: Callable[[str], None] | None = None

    def run(self, batches: Iterator[Sequence[MicroBatch]], steps: range, warmup: bool) -> float:
        """Run all `steps`, each on the next passes of `batches`, and return the wall time of all in seconds."""
        self._clock.synchronize()
        self._of_day = (self._clock.mark(), time.time())
        start_s = time.perf_counter()
        for step in steps:
            self._pending.append(self._step(step, warmup, next(batches)))
            self._write_finished()
        self._clock.synchronize()
        wall_s = time.perf_counter() - start_s
        self._write_finished()
        return wall_s

    def _step(self, step: int, warmup: bool, passes: Sequence[MicroBatch]) -> _Pending:
        # Never inside a measured step, and not between the steps of the window either.
        sequences = digest_of(passes).to("cpu", non_blocking=True) if self.digests and warmup else None
        self.taken += 1
        if self.updates:
            self.updates.begin()
        marks = [("start", self._clock.mark())]
        losses = self.take_step(self.trainable, passes, lambda phase: self._mark(marks, phase))
        mean_loss = torch.stack(list(losses)).mean().to("cpu", non_blocking=True)
        lr, norm = (self.updates.rate(), self.updates.gradient_norm()) if self.updates else (None, None)
        scaled = self.updates.scaled_step() if self.updates else None
        if torch.is_tensor(norm):
            norm = norm.detach().to("cpu", non_blocking=True)
        marks.append(("end", self._clock.mark()))
        return _Pending(step, warmup, passes, mean_loss, sequences, lr, norm, scaled, marks, self._memory_bytes())

    def _mark(self, marks: list[tuple[str, Mark]], phase: str) -> None:
        if self.phases:
            marks.append((phase, self._clock.mark()))
        if self.at_phase_end:
            self.at_phase_end(phase)

    def _write_finished(self) -> None:
        while self._pending and self._pending[0].marks[-1][1].passed():
            self._file.write(self._sample(self._pending.popleft()).model_dump_json() + "\n")
        self._file.flush()

    def _sample(self, done: _Pending) -> StepSample:
        phases = seconds_of_phases(done.marks)
        phases.pop("end")
        return StepSample(
            index=done.step,
            warmup=done.warmup,
            t_start_s=done.marks[0][1].seconds_since(self._origin),
            t_end_s=done.marks[-1][1].seconds_since(self._origin),
            positions=sum(batch.positions for batch in done.batches),
            real_tokens=sum(batch.real_tokens for batch in done.batches),
            samples=sum(batch.samples for batch in done.batches),
            record_squares=_sum_of_known([batch.record_squares for batch in done.batches]),
            bounded_squares=sum(batch.bounded_squares for batch in done.batches),
            loss=float(done.loss),
            sequences=None if done.sequences is None else digest_text(int(done.sequences)),
            lr=done.lr,
            gradient_norm=None if done.gradient_norm is None else float(done.gradient_norm),
            loss_scale=done.scaled[0] if done.scaled else None,
            skipped=done.scaled[1] if done.scaled else None,
            at_s=unix_s(done.marks[-1][1], self._of_day),
            phases_s=phases or None,
            memory_bytes=done.memory_bytes,
        )


def seconds_of_phases(marks: Sequence[tuple[str, Mark]]) -> dict[str, float]:
    """Return the seconds from each mark to the next, added up by the next one's name."""
    seconds: dict[str, float] = defaultdict(float)
    for (_, earlier), (phase, later) in pairwise(marks):
        seconds[phase] += later.seconds_since(earlier)
    return dict(seconds)


def _sum_of_known(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def digest_of(passes: Sequence[MicroBatch]) -> torch.Tensor:
    """Return the sum of the digests of all sequences of these passes, modulo 2^64, an int64 scalar on their device.

    A sequence's digest depends on its ids and labels and on their order. A sum does not depend on the order of the
    sequences, so that those of replicas add up to the step's.
    """
    return torch.stack([_of_sequences(batch).sum() for batch in passes]).sum()


def _of_sequences(batch: MicroBatch) -> torch.Tensor:
    """Return a digest for each sequence, int64 [micro]."""
    places = torch.arange(1, batch.input_ids.shape[1] + 1, device=batch.input_ids.device) * _GOLDEN
    tokens = _mixed(batch.input_ids + places)
    return _mixed(_mixed(tokens + batch.labels).sum(dim=1))


def _mixed(values: torch.Tensor) -> torch.Tensor:
    values = (values ^ (values >> 30)) * _FIRST
    values = (values ^ (values >> 27)) * _SECOND
    return values ^ (values >> 31)
