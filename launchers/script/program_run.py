"""A rank's knowledge of a user's program: its model, the state at its first step, and the summary."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import distributed

from llmexp.launch.no_steps_hint import no_steps_hint
from llmexp.launchers.rank.frame import Rank, gpu_uuid
from llmexp.launchers.rank.versions import rank_environment
from llmexp.launchers.script.own_model import OwnModel, why_no_flops
from llmexp.launchers.training.measuring import counters_of
from llmexp.measure import memory
from llmexp.record.energy import EnergyMeter
from llmexp.record.printed import Output
from llmexp.record.samples import TrainingSummary
from llmexp.record.throttle_counters import ThrottleMeter
from llmexp.training.plan.training_plan import TrainingPlan


class ReportError(BaseException):
    """An error: the program's reports do not fit what was to be measured.

    It is a BaseException, so that the program's own handlers of Exception do not catch it.
    """


class ProgramRun:
    """Collects, at the first step, what can be read only while the program's process group exists."""

    def __init__(self, plan: TrainingPlan, rank: Rank, device: torch.device) -> None:
        self.plan, self.rank, self.device = plan, rank, device
        self._meter, self._throttling = EnergyMeter(counters_of(rank, device)), ThrottleMeter(gpu_uuid(device))
        self.own_model: OwnModel | None = None
        self._time_to_first_step_s = 0.0
        self._environment: dict[str, Any] = {}
        self._backend: str | None = None
        self._peaks = memory.Peaks(device)

    @contextmanager
    def window(self) -> Iterator[None]:
        """Read the hardware's counters at both ends of the measured steps, which run inside this context."""
        with self._throttling, self._meter:
            yield

    def look(self) -> None:
        """Read the time, the environment and the backend; call this at the end of the first step."""
        self._time_to_first_step_s = self.rank.seconds_since_start()
        self._environment = rank_environment(self.device, self.rank.folder)
        self._backend = distributed.get_backend() if distributed.is_initialized() else None

    def check(self, positions: int) -> None:
        """Raise ReportError where a replica's step has another size than planned."""
        batch, seq_len = self.plan.batch, self.plan.config.data.seq_len
        planned = batch.micro * batch.accumulation * seq_len
        if positions != planned:
            raise ReportError(
                f"the program's steps have {positions} tokens a rank, but batch.micro {batch.micro} x "
                f"batch.accumulation {batch.accumulation} x data.seq_len {seq_len} = {planned}: set these to match "
                f"the program, or pass them to it"
            )

    def summary(self, window_wall_s: float, steps_told_by: str) -> TrainingSummary:
        """Sum up a window that is complete."""
        own, doubt = self.own_model, why_no_flops(self.plan, self.own_model)
        what_ran = {
            "program": shlex.join(self.plan.engine_config["argv"]),
            "steps_told_by": steps_told_by,
            "device": str(self.device),
        }
        return TrainingSummary(
            rank=self.rank.index,
            window_wall_s=window_wall_s,
            time_to_first_step_s=self._time_to_first_step_s,
            parameters=own.parameters if own else None,
            trainable_parameters=own.trainable_parameters if own else None,
            state_bytes={},
            what_ran=what_ran
            | {"energy_counters": self._meter.covers, "backend": self._backend}
            | ({"no_flops": doubt} if doubt else {"compute_dtype": own.dtype if own else None}),
            environment=self._environment if self.rank.index == 0 else {},
            energy=self._meter.energy,
            gpu=self._throttling.found,
            **_of_torch(self._peaks.summary()),
        )


def _of_torch(peaks: dict[str, int]) -> dict[str, int]:
    """Leave torch's allocator out where the program has one of its own, as one in C++ has."""
    unused = () if peaks.get("peak_allocated_bytes") else ("peak_allocated_bytes", "peak_reserved_bytes")
    return {name: size for name, size in peaks.items() if name not in unused}


def ended_unheard(plan: TrainingPlan, output: Output) -> str:
    """Say why a program that reported no step was not measured."""
    return f"the program ended without reporting a step: {no_steps_hint(plan, output)}"


def ended_after(reported: int, wanted: int) -> str:
    """Say why a program that reported some steps was not measured."""
    return (
        f"the program ended after {reported} of {wanted} steps: "
        "let it run longer, or lower measure.warmup_steps or measure.steps"
    )
