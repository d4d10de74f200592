"""The program of one life of a replica: it trains until all steps are committed, or it is killed in one."""

from __future__ import annotations

if __name__ == "__main__":
    from llmexp.launchers.rank.starting import begin_imports, end_imports

    begin_imports()

import json
import os
import signal
import time
from typing import NoReturn, TextIO

import torch

from llmexp.launchers.data.loader import passes_of
from llmexp.launchers.models.weights import weights_that_ran
from llmexp.launchers.rank.binding import bind_beside
from llmexp.launchers.rank.frame import Rank, device_of
from llmexp.launchers.rank.versions import rank_environment
from llmexp.launchers.torchft.checkpoint import Checkpoint
from llmexp.launchers.torchft.engine import CHECKPOINTS, RECOVERY
from llmexp.launchers.torchft.groups import FixedGroup, HealingGroup
from llmexp.launchers.torchft.lives import KILLS_LEFT, LIFE, StepRecord, steps_path
from llmexp.launchers.torchft.replica import Replica
from llmexp.launchers.training.engine_kinds import SteppingEngine
from llmexp.launchers.training.frame import train
from llmexp.launchers.training.measuring import sequences_of
from llmexp.launchers.training.state_watch import StateWatch
from llmexp.measure import memory
from llmexp.measure.batch import MicroBatch
from llmexp.measure.loop import digest_of, train_step
from llmexp.record.samples import StepSample, TrainingSummary, digest_text
from llmexp.training.plan.training_plan import TrainingPlan


class Life:
    """A replica from its start to its end."""

    def __init__(self, plan: TrainingPlan, rank: Rank, device: torch.device) -> None:
        self._plan, self._rank, self._device = plan, rank, device
        self._life = int(os.environ[LIFE])
        self._kills: list[int] = json.loads(os.environ[KILLS_LEFT])
        self._every: int | None = plan.engine_config[CHECKPOINTS]
        self._checkpoint = Checkpoint(rank.folder)
        self.replica = Replica(plan, device)
        self._sequences = sequences_of(plan, self.replica.vocab_size)
        self._memory_bytes = memory.current_bytes(device)
        # A wall clock that is set while a step runs must not change the step's length.
        self._unix_s = time.time() - time.perf_counter()
        self._last = plan.config.measure.warmup_steps + plan.config.measure.steps
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
        if self._life == 0:
            healing.meet()

    def run(self) -> StateWatch:
        """Take steps until all are committed and all replicas have part; return what the first one saw of the state."""
        group, watch = self.replica.group, StateWatch(self.replica, self._device)
        engine: SteppingEngine | StateWatch = watch
        with steps_path(self._rank.folder, self._rank.index).open("a") as steps, self._samples() as samples:
            while group.step < self._last or group.replicas < self._rank.world_size:
                self._take(engine, steps, samples)
                if engine is watch:
                    engine, self.time_to_first_step_s = self.replica, self._rank.seconds_since_start()
        return watch

    def _samples(self) -> TextIO:
        return self._rank.samples_path.open("a")

    def _take(self, engine: SteppingEngine | StateWatch, steps: TextIO, samples: TextIO) -> None:
        """Take a step and write what came of it."""
        group, begun = self.replica.group, self.replica.group.step
        passes = passes_of(
            self._sequences, begun, (self._rank.index, self._rank.world_size), self._plan.batch, self._device
        )
        record = StepRecord(step=begun, life=self._life, began_s=self._now_s())
        losses = train_step(engine, passes, lambda phase: self._die(record, steps) if phase == "forward" else None)
        loss = float(torch.stack(list(losses)).mean())
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        ended = {"ended_s": self._now_s(), "replicas": group.replicas, "healed": group.healed, "step": begun}
        if group.replicas:
            # Healing makes the count jump: the step was that of the others.
            ended["step"] = group.step - 1
            if not group.healed:
                ended["sample"] = self._sample(record, passes, loss, self._now_s())
        if group.replicas and self._every and group.step % self._every == 0:
            ended["checkpoint"] = self._rank.index == 0 and self._checkpoint.save(group.step, self.replica)
        _write(record.model_copy(update=ended), steps)
        if sample := ended.get("sample"):
            _write(sample, samples)

    def _die(self, record: StepRecord, steps: TextIO) -> None:
        """End this process as a lost machine would, where the step is one to die in."""
        if self._kills and self._kills[0] <= record.step < self._last - 1:
            _write(record, steps)
            os.kill(os.getpid(), signal.SIGKILL)

    def _sample(self, record: StepRecord, passes: list[MicroBatch], loss: float, ended_s: float) -> StepSample:
        warmup = record.step < self._plan.config.measure.warmup_steps
        squares = [batch.record_squares for batch in passes]
        known = [count for count in squares if count is not None]
        return StepSample(
            index=record.step,
            warmup=warmup,
            t_start_s=record.began_s - self._unix_s,
            t_end_s=ended_s - self._unix_s,
            positions=sum(batch.positions for batch in passes),
            real_tokens=sum(batch.real_tokens for batch in passes),
            samples=sum(batch.samples for batch in passes),
            record_squares=sum(known) if len(known) == len(squares) else None,
            bounded_squares=sum(batch.bounded_squares for batch in passes),
            loss=loss,
            sequences=digest_text(int(digest_of(passes))) if warmup else None,
            at_s=round(ended_s, 6),
            memory_bytes=self._memory_bytes(),
        )

    def _now_s(self) -> float:
        return self._unix_s + time.perf_counter()


def _write(record: StepRecord | StepSample, file: TextIO) -> None:
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
    wall_s = time.perf_counter() - begun_s
    replica = life.replica
    found = {"device": str(device), "state_digest": replica.digest(), **replica.what_ran()}
    environment = rank_environment(device, rank.folder) if rank.index == 0 else {}
    replica.group.leave()
    return TrainingSummary(
        rank=rank.index,
        window_wall_s=wall_s,
        time_to_first_step_s=life.time_to_first_step_s,
        parameters=replica.parameters,
        trainable_parameters=replica.trainable_parameters,
        state_bytes=watch.count.state,
        largest_update=watch.count.largest_update,
        what_ran=found | weights_that_ran(plan.config),
        environment=environment,
        **peaks.summary(),
    )


def main() -> NoReturn:
    """Live; never return."""
    train(work)


if __name__ == "__main__":
    end_imports()
    main()
