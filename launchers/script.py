"""One rank of somebody's training program: run it in this process as torchrun would, and listen to what it reports."""

from __future__ import annotations

import runpy
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from llmexp import hook
from llmexp.launchers.rank import Rank, device_of, main
from llmexp.launchers.training import counters_of
from llmexp.launchers.versions import rank_environment
from llmexp.measure import memory
from llmexp.measure.clock import clock_for
from llmexp.measure.reported import MeasuredError, Reader, ReportedSteps
from llmexp.plan.run_plan import RunPlan
from llmexp.record.energy import EnergyMeter
from llmexp.record.result import RankSummary


class ReportError(RuntimeError):
    """What the program reports cannot be measured as what was asked for."""


def run_program(argv: list[str]) -> None:
    """Run `train.py …` or `-m package.train …` as the main program of this process."""
    module = argv[0] == "-m"
    name, arguments = (argv[1], argv[2:]) if module else (argv[0], argv[1:])
    # As Python itself does it: the program's folder first, of a module the working directory.
    sys.path.insert(0, str(Path.cwd() if module else Path(name).absolute().parent))
    sys.argv = [name, *arguments]
    if module:
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(name, run_name="__main__")


class Listener:
    """Takes what the program reports; at the first step, while the program's process group is there, looks at what surrounds it."""

    def __init__(self, plan: RunPlan, rank: Rank, device: torch.device, steps: ReportedSteps) -> None:
        self._plan, self._rank, self._device, self._steps = plan, rank, device, steps
        self.time_to_first_step_s = 0.0
        self.environment: dict[str, Any] = {}
        self.backend: str | None = None

    def report(self, positions: int, loss: Any) -> None:
        """Take a step; raises ReportError for one of another size than planned, MeasuredError after the last."""
        if not self._steps.reported:
            _check_positions(self._plan, positions)
            self.time_to_first_step_s = self._rank.seconds_since_start()
            self.environment = rank_environment(self._device, self._rank.folder)
            self.backend = distributed.get_backend() if distributed.is_initialized() else None
        self._steps.report(positions, loss)


def work(plan: RunPlan, rank: Rank) -> RankSummary:
    """Run the program until its window is measured; raises ReportError where it ends before, or does other work than the plan says."""
    device, protocol = device_of(plan.config.hardware, rank.local_index), plan.config.measure
    argv: list[str] = plan.engine_config["argv"]
    meter = EnergyMeter(counters_of(rank, device))
    memory.reset_peaks(device)
    with rank.samples_path.open("a") as file:
        reader = Reader(clock_for(device), memory.current_bytes(device), _meet, meter)
        steps = ReportedSteps(protocol.warmup_steps, protocol.steps, reader, file)
        listener = Listener(plan, rank, device, steps)
        _until_measured(lambda: run_program(argv), listener.report)
    wanted = protocol.warmup_steps + protocol.steps
    if steps.reported < wanted:
        raise ReportError(_too_few(steps.reported, wanted))
    return RankSummary(
        rank=rank.index,
        window_wall_s=steps.window_wall_s,
        time_to_first_step_s=listener.time_to_first_step_s,
        parameters=None,
        trainable_parameters=None,
        state_bytes={},
        what_ran={"program": shlex.join(argv), "device": str(device), "energy_counters": meter.covers, "backend": listener.backend},
        environment=listener.environment if rank.index == 0 else {},
        energy=meter.energy,
        **memory.peaks(device),
    )


def _until_measured(program: Callable[[], None], report: Callable[[int, Any], None]) -> None:
    hook.connect(report)
    try:
        program()
    except MeasuredError:
        return
    except SystemExit as end:
        if end.code:
            raise RuntimeError(f"the program ended with exit code {end.code}") from end


def _check_positions(plan: RunPlan, positions: int) -> None:
    batch, seq_len = plan.batch, plan.config.data.seq_len
    planned = batch.micro * batch.accumulation * seq_len
    if positions != planned:
        raise ReportError(
            f"the program's steps have {positions} tokens a rank, but batch.micro {batch.micro} x batch.accumulation {batch.accumulation} x "
            f"data.seq_len {seq_len} = {planned}: set these to what it does, or pass them to it"
        )


def _too_few(reported: int, wanted: int) -> str:
    if not reported:
        return "the program ended without reporting a step: call llmexp.hook.step(tokens=..., loss=...) after each, in the processes of torchrun"
    return f"the program ended after {reported} of {wanted} steps: let it take more, or lower measure.warmup_steps or measure.steps"


def _meet() -> None:
    if distributed.is_initialized():
        distributed.barrier()


if __name__ == "__main__":
    main(work)
