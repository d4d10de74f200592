"""The rank process of a user's training program.

It runs the program in this process as torchrun or Python would, and takes what it reports or prints.
"""

from __future__ import annotations

import contextlib
import os
import re
import runpy
import sys
from pathlib import Path
from typing import Any, NoReturn, TextIO

from torch import distributed

from llmexp import hook
from llmexp.launchers.rank.frame import Rank, device_of
from llmexp.launchers.script.log_timed_rank import Printed
from llmexp.launchers.script.own_model import OwnModel
from llmexp.launchers.script.program_run import ProgramRun, ReportError, ended_after, ended_unheard
from llmexp.launchers.training.frame import train
from llmexp.machine.accelerators.here import visible_variables
from llmexp.measure import memory
from llmexp.measure.clock import clock_for
from llmexp.measure.reported import MeasuredError, Reader, ReportedSteps
from llmexp.record.printed import Appended, Logs, lines_of
from llmexp.record.samples import TrainingSummary
from llmexp.schema.run import PYTHON
from llmexp.training.plan.training_plan import TrainingPlan


def run_program(argv: list[str]) -> None:
    """Run `train.py …` or `-m package.train …` as the main program of this process."""
    os.environ.pop(
        "PYTHONSAFEPATH", None
    )  # llmexp sets it for its own ranks; the program must find its modules as it does without llmexp
    module = argv[0] == "-m"
    name, arguments = (argv[1], argv[2:]) if module else (argv[0], argv[1:])
    # Python does the same: the program's folder comes first, or for a module the working directory.
    sys.path.insert(0, str(Path.cwd() if module else Path(name).absolute().parent))
    sys.argv = [name, *arguments]
    if module:
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(name, run_name="__main__")


class Listener:
    """Receives what the program reports by the hook."""

    def __init__(self, program_run: ProgramRun, steps: ReportedSteps) -> None:
        self._witness, self._steps = program_run, steps

    def step(self, positions: int, loss: Any) -> None:
        """Take a step.

        Raises ReportError for a step of another size than planned, MeasuredError after the last step.
        """
        self._witness.check(positions)
        if not self._steps.reported:
            self._witness.look()
        self._steps.report(positions, loss)

    def model(self, module: Any) -> None:
        """Take the model's size now, and the dtype of its products when they are computed."""
        self._witness.own_model = OwnModel(module)


def work(plan: TrainingPlan, rank: Rank) -> TrainingSummary:
    """Run the program until its window is measured.

    Raises ReportError where it ends before that, or does other work than the plan says.
    """
    if plan.config.engine.launcher == PYTHON:
        hide_other_gpus()
    device = device_of(plan.config.hardware, rank.local_index)
    program_run = ProgramRun(plan, rank, device)
    with rank.samples_path.open("a") as file:
        return _by_lines(program_run, file) if plan.engine_config["line"] else _by_hook(program_run, file)


def hide_other_gpus() -> None:
    """Leave only the first GPU visible.

    In one process a Trainer divides its batch over all GPUs that it sees, but only one is counted.
    """
    for name in visible_variables():
        os.environ[name] = os.environ.get(name, "0").partition(",")[0]


def _by_lines(program_run: ProgramRun, file: TextIO) -> NoReturn:
    """Run a program that is timed by its lines; the process ends in one of them if the window is complete."""
    printed = Printed(program_run, file)
    try:
        _run_to_its_end(program_run)
    finally:
        printed.close()
    printed.ended()


def _by_hook(program_run: ProgramRun, file: TextIO) -> TrainingSummary:
    plan, protocol = program_run.plan, program_run.plan.config.measure
    reader = Reader(
        clock_for(program_run.device), memory.current_bytes(program_run.device), _meet, program_run.window()
    )
    steps = ReportedSteps(protocol.warmup_steps, protocol.steps, reader, file)
    hook.connect(Listener(program_run, steps))
    if plan.engine_config["callback"]:
        from llmexp.launchers.script.trainer_callback import add_to_every_trainer

        add_to_every_trainer()
    with contextlib.suppress(MeasuredError):
        _run_to_its_end(program_run)
    wanted = protocol.warmup_steps + protocol.steps
    if steps.reported < wanted:
        raise ReportError(
            ended_after(steps.reported, wanted)
            if steps.reported
            else ended_unheard(plan, Logs(program_run.rank.folder).read())
        )
    return program_run.summary(steps.window_wall_s, "callback" if plan.engine_config["callback"] else "hook")


def _run_to_its_end(program_run: ProgramRun) -> None:
    try:
        run_program(program_run.plan.engine_config["argv"])
    except SystemExit as end:
        if end.code:
            raise RuntimeError(exit_reason(program_run.rank, end.code)) from end


def exit_reason(rank: Rank, code: Any) -> str:
    """Name the exit code that Python gives the program, with the program's own words.

    They are the text of sys.exit("…"), or a line that was printed, as argparse does.
    """
    if not isinstance(code, int):
        return f"the program ended with exit code 1: {' '.join(str(code).split())}"
    said = last_words(lines_of(Appended(rank.log_path)))
    return f"the program ended with exit code {int(code)}" + (f"; its last line: {said}" if said else "")


def last_words(lines: list[str]) -> str:
    """Return the last line with a word in it.

    argparse and similar tools give their reason there, and a frame around an error ends there.
    """
    return next((line for line in reversed(lines) if re.search(r"\w", line)), "")


def _meet() -> None:
    if distributed.is_initialized():
        distributed.barrier()


if __name__ == "__main__":
    train(work)
