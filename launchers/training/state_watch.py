"""Counts the bytes of training state by kind, in one step, while there is most of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import ref

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from llmexp.launchers.training.engine_kinds import Built, KeepsFiles, RankEngine, SchedulingEngine, SteppingEngine
from llmexp.launchers.training.optimizer_state import local
from llmexp.measure import memory
from llmexp.measure.batch import MicroBatch
from llmexp.measure.loop import Scheduled
from llmexp.record.samples import StateBytes

# The number of elements of each tensor that are compared to see an update:
# a copy of all parameters might not fit beside them.
SAMPLED = 1024


class StateWatch:
    """A wrapper of an engine for one step, which counts its state while there is most of it.

    State that comes and goes is counted after each pass and in the update, the rest after the update.
    """

    def __init__(self, engine: SteppingEngine, device: torch.device) -> None:
        self._engine, self.count = engine, StateCount(engine, device)

    def forward(self, batch: MicroBatch) -> torch.Tensor:
        """Run the engine's forward, then count what it has gathered."""
        loss = self._engine.forward(batch)
        self.count.passing()
        return loss

    def backward(self, loss: torch.Tensor) -> None:
        """Run the engine's backward, then count the gradients."""
        self._engine.backward(loss)
        self.count.passing()

    def step(self) -> None:
        """Run the engine's step with a count during the update, then count what it has updated."""
        with self.count.in_updates():
            self._engine.step()
        self.count("parameters", "optimizer", "moments")


class ScheduleWatch:
    """A wrapper like StateWatch, for an engine that orders the passes itself.

    It counts at the end of the phases, and what is gathered after each stage's forward.
    """

    def __init__(self, engine: SchedulingEngine, device: torch.device) -> None:
        self._engine, self.count = engine, StateCount(engine, device)

    def train(self, passes: Sequence[MicroBatch], mark: Callable[[str], None]) -> Sequence[torch.Tensor]:
        """Run the engine's step with the counts."""

        def counting(phase: str) -> None:
            if phase.endswith("backward"):
                self.count.passing()
            elif phase == "optimizer":
                self.count("parameters", "optimizer", "moments")
            mark(phase)

        with self.count.in_updates(), self._after_forwards():
            return self._engine.train(passes, counting)

    @contextmanager
    def _after_forwards(self) -> Iterator[None]:
        """Count after each forward of a stage, where one gathers parameters."""
        gathers = "gathered" in self._engine.state_tensors()
        stages = self._engine.module.children() if gathers else ()
        handles = [stage.register_forward_hook(lambda *_: self.count.passing()) for stage in stages]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


class StateCount:
    """Bytes of an engine's state by kind, as last counted.

    It also tells how far the parameters have moved since it was made.
    """

    def __init__(self, engine: Built, device: torch.device) -> None:
        self._engine, self._device = engine, device
        self.state: dict[str, StateBytes] = {}
        self.largest_update: float | None = None
        self._before = _samples(engine.state_tensors()["parameters"])
        self._gradients: list[ref[torch.UntypedStorage]] = []

    def __call__(self, *kinds: str) -> None:
        """Count these kinds now."""
        tensors, offloaded = self._engine.state_tensors(), self._engine.offloaded()
        for kind in kinds:
            self.state[kind] = self._with_files(
                kind, memory.bytes_of(tensors[kind], self._device, offloaded=kind in offloaded)
            )
        if buffers := self._swap_buffers():
            self.state["swap_buffers"] = memory.bytes_of(buffers, self._device, offloaded=True)
        if "parameters" in kinds:
            self.state["parameters"] = _sum(
                self.state["parameters"], memory.bytes_of(tensors.get("scales", []), self._device)
            )
            self.largest_update = _largest_change(self._before, _samples(tensors["parameters"]))

    def passing(self, copies: Iterable[torch.Tensor] = ()) -> None:
        """Count gradients, with these copies of them, and what is gathered, each alone and both together.

        The largest value of each is kept.
        """
        tensors = self._engine.state_tensors()
        gradients = self._with_files("gradients", self._bytes_of_gradients([*tensors["gradients"], *copies]))
        found = {"gradients": gradients}
        if "gathered" in tensors:
            found["gathered"] = memory.bytes_of(tensors["gathered"], self._device)
            found["gradients_and_gathered"] = _sum(gradients, found["gathered"])
        self.state |= {kind: _most(size, self.state.get(kind, size)) for kind, size in found.items()}

    @contextmanager
    def in_updates(self) -> Iterator[None]:
        """Count as each optimizer begins an update.

        By then wrappers have given it copies of the gradients, and may have kept the gradients too.
        """

        def begins(optimizer: torch.optim.Optimizer, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
            updated = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            self.passing(local(parameter.grad) for parameter in updated if parameter.grad is not None)

        handle = register_optimizer_step_pre_hook(begins)
        try:
            yield
        finally:
            handle.remove()

    def _with_files(self, kind: str, held: StateBytes) -> StateBytes:
        files = self._engine.file_bytes() if isinstance(self._engine, KeepsFiles) else {}
        return held.model_copy(update={"disk": files.get(kind, 0)})

    def _swap_buffers(self) -> list[torch.Tensor]:
        return self._engine.swap_buffers() if isinstance(self._engine, KeepsFiles) else []

    def _bytes_of_gradients(self, tensors: Iterable[torch.Tensor]) -> StateBytes:
        """Count the bytes of these gradients, and of all seen before whose memory is still held.

        For example, DDP holds the memory of its buckets after the gradients in them are gone. Buffers through which
        states pass are counted apart.
        """
        passed = {buffer.untyped_storage().data_ptr() for buffer in self._swap_buffers()}
        seen = [storage for known in self._gradients if (storage := known()) is not None]
        found = [*seen, *(tensor.untyped_storage() for tensor in tensors if tensor.numel())]
        storages = [storage for storage in found if storage.data_ptr() not in passed]
        self._gradients = [ref(storage) for storage in storages]
        return memory.bytes_of_storages(storages, self._device, offloaded="gradients" in self._engine.offloaded())


def _sum(one: StateBytes, other: StateBytes) -> StateBytes:
    return StateBytes(device=one.device + other.device, host=one.host + other.host, disk=one.disk + other.disk)


def _most(one: StateBytes, other: StateBytes) -> StateBytes:
    return StateBytes(
        device=max(one.device, other.device), host=max(one.host, other.host), disk=max(one.disk, other.disk)
    )


def _samples(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Copy the first elements of each floating-point tensor; quantized ones never change."""
    return [
        tensor.detach().view(-1)[:SAMPLED].float().clone()
        for tensor in tensors
        if tensor.is_floating_point() and tensor.is_contiguous()
    ]


def _largest_change(before: Sequence[torch.Tensor], after: Sequence[torch.Tensor]) -> float | None:
    """Return the largest change of any element, or None where an engine now holds its parameters in other shapes."""
    if [one.shape for one in before] != [one.shape for one in after]:
        return None
    return max(
        (float((new - old).abs().max()) for old, new in zip(before, after, strict=True) if old.numel()), default=None
    )


def watch_over(engine: RankEngine, device: torch.device) -> StateWatch | ScheduleWatch:
    """Return the watch for an engine's kind."""
    return ScheduleWatch(engine, device) if isinstance(engine, Scheduled) else StateWatch(engine, device)
