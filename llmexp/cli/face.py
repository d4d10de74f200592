"""What `llmexp.plan`, `advise` and `run` do, for scripts, notebooks and CI; the commands do the same and print it."""

from __future__ import annotations

import logging
import os
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import TextIOBase
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from llmexp.advice.goal import DEFAULT
from llmexp.answers.advised import options_advised
from llmexp.answers.measured import MeasuredRun, measured_run
from llmexp.answers.planned import PlannedRun, planned_run
from llmexp.cli.advice_frame import advice_frame
from llmexp.cli.advice_table import choice
from llmexp.cli.advised import advised, asked_of
from llmexp.cli.app import CONFIG, hydra_app
from llmexp.cli.failures import failures_of
from llmexp.cli.launchers import PlannedTask
from llmexp.cli.overrides import accept, print_replaced
from llmexp.cli.plan_answer import check_budget
from llmexp.cli.words import jobs_and_launcher, own_folder, search_path
from llmexp.errors import ConfigError, in_one_line
from llmexp.frame.made import check_pandas
from llmexp.launch.forked import close_server
from llmexp.record.plan import RunPlan
from llmexp.record.reading import plain
from llmexp.report.failure_words import read_failures
from llmexp.report.training_budget import read_training_budget
from llmexp.sweep.cost import Cost, costs_of
from llmexp.sweep.measuring import folder_of
from llmexp.sweep.search.searching import Searched

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from llmexp.cli.hydra_private import Hydra

Place = str | os.PathLike[str]
_LOGGER = logging.getLogger("llmexp")
_WARNING = "llmexp: "
_LOGGER.addHandler(logging.NullHandler())  # silent, unless the program asks for logs


def plan(
    *words: str, training: str | None = None, failures: str | None = None, config_dir: Place | None = None
) -> list[PlannedRun]:
    """Plan the runs that the words of a command line say, and start none: plan("model=7b", "method=R,R+Z3").

    Each run says whether it fits, its expected speed and cost, with units in the names, and holds its whole plan. It
    needs no torch and no GPU. `failures` is what `llmexp plan --failures` takes, and `training` the whole training that
    they fall on, as `--for` has it: "tokens=15e12". `config_dir` is a folder with groups and options of your own.
    Nothing is printed: notices go to the logger `llmexp`. Raises ConfigError, of one line, for words that cannot be.
    """
    with _as_library():
        budget = None if training is None else read_training_budget(training)
        assumed = None if failures is None else read_failures(failures)
        found = planned(_arguments(words, config_dir))
        if budget:
            check_budget(found.plans, budget)
        return [planned_run(cost, failures_of(cost, budget, assumed)) for cost in found.costs]


def advise(
    *words: str,
    goal: str = DEFAULT,
    tokens: float | None = None,
    global_batch: int | None = None,
    plain: bool = False,
    config_dir: Place | None = None,
) -> Any:
    """Rank what the words of a command line leave open, in a pandas.DataFrame: advise("model=7b", "hardware=rtx4090").

    A row is an option, the best first; `command` starts it, and `command` of the first is the advice. `goal` is one of
    tokens_per_s, tokens_per_usd, time and fits; `tokens` are those of a whole training, `global_batch` the samples of a
    step. `plain` leaves out what changes the mathematics. `attrs` has the choice in words, what each column means and
    what nearly fits. Nothing starts, nothing is printed. Raises ConfigError, of one line, where nothing can be chosen.
    """
    with _as_library():
        check_pandas("llmexp.advise")
        args = _arguments((f"goal={goal}", *words), config_dir)
        args.plain, args.top, args.run = plain, None, None
        args.training = None if tokens is None else read_training_budget(f"tokens={tokens}")
        args.global_batch = _whole("global_batch", global_batch)
        ranking = advised(args, asked_of(args))
        return advice_frame(options_advised(ranking, list(choice(ranking))))


def run(*words: str, config_dir: Place | None = None) -> list[MeasuredRun]:
    """Measure the runs that the words of a command line say, as the shell does, and return them when all have ended.

    They are in the order of the sweep, also those that had an answer before. A run that failed raises nothing: its
    result says how it ended. Nothing is printed: the notices, the progress and the report go to the logger `llmexp`.
    Ctrl-C ends the run in hand, writes its result and raises KeyboardInterrupt; the same words then go on with what is
    missing. Raises ConfigError, of one line and before anything starts, for words that cannot be.
    """
    with _as_library():
        if not words:
            raise ConfigError('no run given: llmexp.run("method=Naive", "model=tiny") measures one')
        args = _arguments(words, config_dir)
        if task := idle_task():
            _LOGGER.warning("%s", idle_line(task))
            return []
        folder = own_folder(args)
        with _nothing_left(), hydra_app(folder) as hydra:
            print_replaced(args.overrides)
            overrides = accept(hydra.config_loader, search_path(folder) + args.overrides)
            return [measured_run(plan) for plan in sweep(hydra, overrides, configures_logging=False).plans]


@dataclass(frozen=True)
class Planned:
    """The plans of a command line with their costs, and the launcher's own keys as they are composed."""

    costs: Sequence[Cost]
    launcher: DictConfig

    @property
    def plans(self) -> list[RunPlan]:
        """The plans alone."""
        return [cost.plan for cost in self.costs]


def planned(args: Namespace) -> Planned:
    """Plan what the overrides say, with the cost of each run, and start nothing; raises ConfigError."""
    print_replaced(args.overrides)
    jobs, launcher = jobs_and_launcher(args)
    plans = [job.plan for job in jobs]
    return Planned(costs_of(plans, [folder_of(plan) for plan in plans]), launcher)


@dataclass(frozen=True)
class Swept:
    """A sweep that has ended: the exit code of its command, the plans of its runs, and what came of a search."""

    code: int
    plans: Sequence[RunPlan]
    searched: Searched | None


def sweep(hydra: Hydra, overrides: list[str], *, configures_logging: bool = True) -> Swept:
    """Measure and report the sweep that accepted overrides describe; raises ConfigError before anything starts.

    Hydra's configuration of Python's logging removes the handlers of a program that uses llmexp as a library.
    """
    task = PlannedTask()
    code = hydra.multirun(CONFIG, task, overrides, with_log_configuration=configures_logging)
    return Swept(int(code), task.swept, task.searched)


def idle_task() -> str:
    """Return this task's number on its node where srun started several, of which one alone is to measure; else ''."""
    task = os.environ.get("SLURM_LOCALID", "0")
    return task if task != "0" else ""


def idle_line(task: str) -> str:
    """Say why this task of srun measures nothing."""
    return f"task {task} of this node leaves the run to task 0, which starts all ranks"


def _arguments(words: Sequence[str], config_dir: Place | None) -> Namespace:
    for word in words:
        if not isinstance(word, str):
            raise ConfigError(f"{word!r} is not a string: write each word as one, such as 'model=7b'")
    return Namespace(overrides=list(words), config_dir=None if config_dir is None else str(Path(config_dir)))


def _whole(name: str, value: int | None) -> int | None:
    if value is not None and (not isinstance(value, int) or value < 1):
        raise ConfigError(f"{name}={value!r}: must be a whole number of 1 or more")
    return value


@contextmanager
def _nothing_left() -> Iterator[None]:
    """End what was started to start ranks quickly: a program goes on after its sweep, where a command ends."""
    try:
        yield
    finally:
        close_server()


@contextmanager
def _as_library() -> Iterator[None]:
    """Print nothing, and raise errors for wrong words in one line."""
    with _logged():
        try:
            yield
        except ConfigError as error:
            raise type(error)(in_one_line(plain(str(error)))) from error


class _Logged(TextIOBase):
    """A text stream whose lines are logged: lines that begin with `llmexp:` as warnings, others as information.

    `stream` takes what a handler of the program's own writes while a line is logged.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._line, self._logs = stream, "", False

    def write(self, text: str) -> int:
        """Log every line that is complete."""
        if self._logs:
            return self._stream.write(text)
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            self._log(line)
        return len(text)

    def end(self) -> None:
        """Log what was not ended by a line end."""
        rest, self._line = self._line, ""
        self._log(rest)

    def _log(self, line: str) -> None:
        shown = plain(line).rstrip()
        if not shown:
            return
        self._logs = True
        try:
            level = logging.WARNING if shown.startswith(_WARNING) else logging.INFO
            _LOGGER.log(level, "%s", shown.removeprefix(_WARNING))
        finally:
            self._logs = False


@contextmanager
def _logged() -> Iterator[None]:
    """Log what is printed within the block, by whichever thread of the process."""
    out, err = _Logged(sys.stdout), _Logged(sys.stderr)
    try:
        with redirect_stdout(cast(TextIO, out)), redirect_stderr(cast(TextIO, err)):
            yield
    finally:
        out.end()
        err.end()
