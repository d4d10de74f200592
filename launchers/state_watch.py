"""The bytes of training state by kind, counted in one step while there is most of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch

from llmexp.launchers.engine_kinds import Built, SchedulingEngine, SteppingEngine, TrainingEngine
from llmexp.measure import memory
from llmexp.measure.loop import MicroBatch, Scheduled
from llmexp.record.result import StateBytes

# Of each tensor, to see an update by: a copy of all parameters might not fit beside them.
SAMPLED = 1024


class StateWatch:
    """Stands before an engine for one step and counts its state when there is most of it: gradients after backward, the rest after the update."""

    def __init__(self, engine: SteppingEngine, device: torch.device) -> None:
        self._engine, self.count = engine, StateCount(engine, device)

    def forward(self, batch: MicroBatch) -> torch.Tensor:
        """As the engine does."""
        return self._engine.forward(batch)

    def backward(self, loss: torch.Tensor) -> None:
        """As the engine does; then count the gradients."""
        self._engine.backward(loss)
        self.count("gradients")

    def step(self) -> None:
        """As the engine does; then count what it updated."""
        self._engine.step()
        self.count("parameters", "optimizer", "moments")


class ScheduleWatch:
    """The same before an engine that orders the passes itself: it counts at the end of those phases."""

    def __init__(self, engine: SchedulingEngine, device: torch.device) -> None:
        self._engine, self.count = engine, StateCount(engine, device)

    def train(self, passes: Sequence[MicroBatch], mark: Callable[[str], None]) -> Sequence[torch.Tensor]:
        """As the engine does, with the counts."""

        def counting(phase: str) -> None:
            if phase.endswith("backward"):
                self.count("gradients")
            elif phase == "optimizer":
                self.count("parameters", "optimizer", "moments")
            mark(phase)

        return self._engine.train(passes, counting)


class StateCount:
    """Bytes of an engine's state by kind, as they were when last counted, and how far its parameters have moved since it was made."""

    def __init__(self, engine: Built, device: torch.device) -> None:
        self._engine, self._device = engine, device
        self.state: dict[str, StateBytes] = {}
        self.largest_update: float | None = None
        self._before = _samples(engine.state_tensors()["parameters"])

    def __call__(self, *kinds: str) -> None:
        """Count these kinds now."""
        tensors, offloaded = self._engine.state_tensors(), self._engine.offloaded()
        for kind in kinds:
            self.state[kind] = memory.bytes_of(tensors[kind], self._device, offloaded=kind in offloaded)
        if "parameters" in kinds:
            self.largest_update = _largest_change(self._before, _samples(tensors["parameters"]))


def _samples(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """The first elements of each that computes; quantised ones never change."""
    return [tensor.detach().view(-1)[:SAMPLED].float().clone() for tensor in tensors if tensor.is_floating_point() and tensor.is_contiguous()]


def _largest_change(before: Sequence[torch.Tensor], after: Sequence[torch.Tensor]) -> float | None:
    """The largest of all elements; None where an engine holds its parameters otherwise than before."""
    if [one.shape for one in before] != [one.shape for one in after]:
        return None
    return max((float((new - old).abs().max()) for old, new in zip(before, after, strict=True) if old.numel()), default=None)


def watch_over(engine: TrainingEngine, device: torch.device) -> StateWatch | ScheduleWatch:
    """The watch for an engine's kind."""
    return ScheduleWatch(engine, device) if isinstance(engine, Scheduled) else StateWatch(engine, device)
