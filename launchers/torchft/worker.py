"""The program of one life of a replica: it trains until all steps are committed, or it is killed in one."""

from __future__ import annotations

if __name__ == "__main__":
    from llmexp.launchers.rank.starting import begin_imports, end_imports

    begin_imports()

import json
import os
import signal
import time
from itertools import count
from typing import Any, TextIO

import torch

from llmexp.launchers.data.loader import passes_of
from llmexp.launchers.models.weights import weights_that_ran
from llmexp.launchers.rank.binding import bind_beside
from llmexp.launchers.rank.frame import Rank, device_of, lift_memory_limit
from llmexp.launchers.rank.versions import rank_environment
from llmexp.launchers.torchft.checkpoint import CheckpointFile
from llmexp.launchers.torchft.groups import FixedGroup, HealingGroup
from llmexp.launchers.torchft.lives import (
    CHECKPOINTS,
    KILLS_LEFT,
    LIFE,
    RECOVERY,
    StepRecord,
    cut_last_line,
    steps_path,
)
from llmexp.launchers.torchft.replica import Replica
from llmexp.launchers.torchft.samples_file import SamplesFile
from llmexp.launchers.training.engine_kinds import SteppingEngine
from llmexp.launchers.training.frame import train
from llmexp.launchers.training.measuring import sequences_of, trace_steps, unrecorded, what_was_read
from llmexp.launchers.training.state_watch import StateWatch
from llmexp.measure import memory
from llmexp.measure.batch import MicroBatch
from llmexp.measure.clock import clock_for
from llmexp.measure.kernels import KernelProbe
from llmexp.measure.loop import digest_of, seconds_of_phases, train_step
from llmexp.record.samples import StepSample, TrainingSummary, digest_text
from llmexp.record.what_ran import WhatRan
from llmexp.training.plan.training_plan import TrainingPlan


class Life:
    """A replica from its start to its end."""

    def __init__(self, plan: TrainingPlan, rank: Rank, device: torch.device) -> None:
        self._plan, self._rank, self._device = plan, rank, device
        self.number = int(os.environ[LIFE])
        self._kills: list[int] = json.loads(os.environ[KILLS_LEFT])
        self._every: int | None = plan.engine_config[CHECKPOINTS]
        self._checkpoint = CheckpointFile(rank.folder)
        self.replica = Replica(plan, device)
        self._sequences = sequences_of(plan, self.replica.vocab_size)
        self._memory_bytes = memory.current_bytes(device)
        # A wall clock that is set while a step runs must not change the step's length.
        self._unix_s = time.time() - time.perf_counter()
        self._last = plan.config.measure.warmup_steps + plan.config.measure.steps
        self._samples = SamplesFile(rank, self._last)
        self._begun_s = self._samples.origin_s or self._now_s()
        self.time_to_first_step_s = 0.0

    def join(self) -> None:
        """Meet the other replicas, as the plan's recovery does, and go on where training stands."""
        if self._plan.engine_config[RECOVERY] == "restart":
            group = FixedGroup(self._rank.world_size, self._device)
            self.replica.join(group)
            group.step = self._checkpoint.load_into(self.replica, self._device)
            return
        place = self._rank.index, self._rank.world_size
        healing = HealingGroup(place, self._device, self.replica.state, self.replica.load)
        self.replica.join(healing)
        if self.number == 0:
            healing.meet()

    def run(self) -> StateWatch:
        """Take steps until all are committed and all replicas have part; return what the first one saw of the state."""
        group, watch = self.replica.group, StateWatch(self.replica, self._device)
        engine: SteppingEngine | StateWatch = watch
        own = steps_path(self._rank.folder, self._rank.index)
        cut_last_line(own)
        with own.open("a") as steps, self._samples as samples:
            while group.step < self._last or group.replicas < self._rank.world_size:
                self._take(engine, steps, samples)
                if engine is watch:
                    engine, self.time_to_first_step_s = self.replica, self._rank.seconds_since_start()
            samples.catch_up(self._last)
        return watch

    def kernels(self) -> WhatRan:
        """Say which kernels a pass runs, by a profiled one without the others that updates nothing."""
        probe = KernelProbe()
        with probe.watch():
            self.replica.pass_alone(self._passes(0)[0])
        return {
            "attention_kernel": probe.attention,
            "kernels": probe.costliest(),
            "products_in": probe.products_in,
        }

    def trace(self) -> None:
        """Trace further steps with the others, where the plan asks for it."""
        loop, batches = unrecorded(self.replica, self._device), map(self._passes, count(self._last))
        trace_steps(self._plan.config.measure, self._rank, self.replica, loop, batches)

    def _passes(self, step: int) -> list[MicroBatch]:
        place = (self._rank.index, self._rank.world_size)
        return passes_of(self._sequences, step, place, self._plan.batch, self._device)

    def read(self) -> dict[str, Any]:
        """Say what all steps that count have read."""
        return what_was_read(self._plan, self._sequences, self._last)

    def _take(self, engine: SteppingEngine | StateWatch, steps: TextIO, samples: SamplesFile) -> None:
        """Take a step and write what came of it."""
        group, clock = self.replica.group, clock_for(self._device)
        record = StepRecord(step=group.step, life=self.number, began_s=self._now_s())
        passes = self._passes(record.step)
        marks = [("start", clock.mark())]

        def mark(phase: str) -> None:
            if phase == "forward":
                self._die(record, steps)
            if self._plan.config.measure.phases:
                marks.append((phase, clock.mark()))

        losses = train_step(engine, passes, mark)
        loss = float(torch.stack(list(losses)).mean())
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        record = record.model_copy(update=self._outcome())
        if group.replicas and not group.healed:
            record.sample = self._sample(record, passes, loss, seconds_of_phases(marks))
            samples.write(record.sample)
        if group.replicas and self._rank.index == 0 and self._every and group.step % self._every == 0:
            self._checkpoint.save(group.step, self.replica)
            record.checkpoint = True
        _write(record, steps)

    def _outcome(self) -> dict[str, Any]:
        """Return what the group made of the step; healing makes the count jump, as the step was that of the others."""
        group = self.replica.group
        found = {"ended_s": self._now_s(), "replicas": group.replicas, "healed": group.healed}
        return found | ({"step": group.step - 1} if group.replicas else {})

    def _die(self, record: StepRecord, steps: TextIO) -> None:
        """End this process as a lost machine would, where the step is one to die in: while the others wait for it."""
        if self._kills and self._kills[0] <= record.step < self._last - 1:
            self.replica.group.await_members()
            _write(record, steps)
            os.kill(os.getpid(), signal.SIGKILL)

    def _sample(
        self, record: StepRecord, passes: list[MicroBatch], loss: float, phases_s: dict[str, float]
    ) -> StepSample:
        assert record.ended_s
        warmup = record.step < self._plan.config.measure.warmup_steps
        squares = [batch.record_squares for batch in passes]
        return StepSample(
            index=record.step,
            warmup=warmup,
            t_start_s=record.began_s - self._begun_s,
            t_end_s=record.ended_s - self._begun_s,
            positions=sum(batch.positions for batch in passes),
            real_tokens=sum(batch.real_tokens for batch in passes),
            samples=sum(batch.samples for batch in passes),
            record_squares=None if None in squares else sum(filter(None, squares)),
            bounded_squares=sum(batch.bounded_squares for batch in passes),
            loss=loss,
            sequences=digest_text(int(digest_of(passes))) if warmup else None,
            at_s=record.ended_s,
            phases_s=phases_s or None,
            memory_bytes=self._memory_bytes(),
        )

    def _now_s(self) -> float:
        return self._unix_s + time.perf_counter()


def _write(record: StepRecord, file: TextIO) -> None:
    file.write(record.model_dump_json() + "\n")
    file.flush()


def work(plan: TrainingPlan, rank: Rank) -> TrainingSummary:
    """Live once; the supervisor puts the window of all lives in the place of this one's."""
    device = device_of(plan.config.hardware, rank.local_index)
    bind_beside(device)
    torch.set_float32_matmul_precision("high" if plan.config.precision.tf32 else "highest")
    life = Life(plan, rank, device)
    life.join()
    peaks, begun_s = memory.Peaks(device), time.perf_counter()
    watch = life.run()
    wall_s, peak_bytes = time.perf_counter() - begun_s, peaks.summary()
    lift_memory_limit()
    replica = life.replica
    found = {"device": str(device), "state_digest": replica.digest(), **replica.what_ran(), **life.kernels()}
    life.trace()
    environment = rank_environment(device, rank.folder) if rank.index == 0 else {}
    replica.group.leave()
    return TrainingSummary(
        rank=rank.index,
        window_wall_s=wall_s,
        time_to_first_step_s=life.time_to_first_step_s,
        parameters=replica.parameters,
        trainable_parameters=replica.trainable_parameters,
        state_bytes=watch.count.state,
        # The first step of a later life is not the first of the training.
        largest_update=None if life.number else watch.count.largest_update,
        what_ran=found | life.read() | weights_that_ran(plan.config),
        environment=environment,
        **peak_bytes,
    )


if __name__ == "__main__":
    end_imports()
    train(work)
