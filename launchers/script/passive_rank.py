"""A rank of a program whose steps another rank times by its lines.

It learns of the steps from the ranks' store, and writes them with its own memory figures.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import TextIO

import torch
from torch import distributed
from torch.distributed import HashStore, PrefixStore, Store  # type: ignore[attr-defined]

from llmexp.launchers.rank.frame import fail, leave
from llmexp.launchers.rank.meeting import connection
from llmexp.launchers.script.program_run import ProgramRun
from llmexp.measure import memory
from llmexp.record.samples import StepSample


def store_for(program_run: ProgramRun) -> Store:
    """Return a connection to the ranks' store, one for each thread; reads wait until a key is set.

    A single rank needs no connection.
    """
    if program_run.rank.world_size == 1:
        return HashStore()
    return PrefixStore("llmexp", connection(timedelta(seconds=program_run.plan.config.measure.timeout_s)))


class Follower:
    """A thread beside the program of a rank that does not time steps; it sleeps until a step is announced."""

    def __init__(self, program_run: ProgramRun, file: TextIO) -> None:
        self._witness, self._file, self._store = program_run, file, store_for(program_run)

    def run(self) -> None:
        """Take part until the window is complete, then end the process.

        Where the store disappears, a rank has failed, and this process ends too.
        """
        try:
            self._follow()
        except distributed.DistError:
            return
        except BaseException as error:
            fail(self._witness.rank, error)

    def _follow(self) -> None:
        program_run, measure = self._witness, self._witness.plan.config.measure
        timed_by = int(self._store.get("timed_by"))
        if timed_by == program_run.rank.index:
            return
        if program_run.device.type == "cuda":  # a new thread uses the first GPU until it sets another
            torch.cuda.set_device(program_run.device)
        memory_bytes = memory.current_bytes(program_run.device)
        self._take(range(1), memory_bytes)
        program_run.look()
        self._take(range(1, measure.warmup_steps), memory_bytes)
        with program_run.window():
            self._take(range(measure.warmup_steps, measure.warmup_steps + measure.steps), memory_bytes)
        program_run.rank.write("rank", program_run.summary(float(self._store.get("window_wall_s")), told_by(timed_by)))
        self._store.set(f"done.{program_run.rank.index}", "")
        leave(0)

    def _take(self, steps: range, memory_bytes: Callable[[], int]) -> None:
        for step in steps:
            sample = StepSample.model_validate_json(self._store.get(f"step.{step}"))
            self._file.write(
                sample.model_copy(
                    update={"memory_bytes": memory_bytes(), "at_s": round(time.time(), 3)}
                ).model_dump_json()
                + "\n"
            )
            self._file.flush()


def told_by(rank: int) -> str:
    """Say where the steps of all ranks come from."""
    return f"output of rank {rank}"
