"""Measure a sweep's repeats in rounds: one repeat of every run, then one more of every run (measure.order=interleaved).

Run by run, whatever drifts while a sweep lasts (temperature, clocks, neighbors) favors the runs at one end of it. In
rounds it meets all runs nearly alike. Every second round goes backwards, so that an even drift cancels between two
rounds: after an even number of them it favors nobody, after an odd number it leaves to each run's mean what one round
gave. A shuffle would cancel it on average only, and would try a large batch before a smaller one that may foretell its
out of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, TypeVar

from llmexp.errors import ConfigError, LlmexpError
from llmexp.launch.attempt import RunHeldError, only_attempt
from llmexp.launch.display import say
from llmexp.launch.interrupt import Waited, signals_interrupt
from llmexp.record.plan import RunPlan
from llmexp.sweep.measuring import (
    attempted,
    draw_and_record,
    folder_of,
    is_answered,
    is_wanted,
    keep,
    records_named,
    with_predicted_skip,
)

if TYPE_CHECKING:
    from llmexp.launch.run import RunInTurns

T = TypeVar("T")


def measure_in_turns(plans: Sequence[RunPlan], began: str | None) -> list[bool | None]:
    """Measure the plans in rounds, and say of each whether it met no error; None where another driver holds the run.

    Each run is held from the start to its end, so that no other driver tears the rounds apart.
    """
    runs = [_Run(plan, began) for plan in plans]
    with ExitStack() as stack, signals_interrupt():
        for run in runs:
            stack.callback(run.release)
            run.hold()
        try:
            _take_rounds(runs)
        except KeyboardInterrupt:
            for run in runs:
                run.interrupt()
            raise
    return [run.well for run in runs]


def check_one_driver(plans: Sequence[RunPlan], launcher: str) -> None:
    """Raise ConfigError where the repeats of runs that a launcher gives drivers of their own are to be interleaved."""
    if any(plan.config.is_interleaved for plan in plans):
        raise ConfigError(
            f"measure.order=interleaved: hydra/launcher={launcher} gives each run its own driver, so runs cannot take "
            f"turns: leave one of the two out"
        )


def in_round(runs: Sequence[T], number: int) -> Sequence[T]:
    """Return the runs in the order in which they have their turns in a round, counted from 1."""
    return runs if number % 2 else runs[::-1]


def _take_rounds(runs: Sequence[_Run]) -> None:
    number = 0
    while going := [run for run in runs if run.goes_on]:
        number += 1
        if len(going) > 1:
            way = "in the sweep's order" if number % 2 else "from the last to the first"
            say(f"round {number} | a repeat of each of {len(going)} runs, {way}")
        for run in in_round(going, number):
            run.take_turn()


class _Run:
    """One run of the sweep, as far as it has come."""

    def __init__(self, plan: RunPlan, began: str | None) -> None:
        self._plan, self._began, self._folder = plan, began, folder_of(plan)
        self._lock = ExitStack()
        self._turns: RunInTurns | None = None
        self.goes_on = False
        self.well: bool | None = None

    def hold(self) -> None:
        """Hold the run against other drivers, or keep the answer that it has."""
        self._attempt(self._hold)

    def take_turn(self) -> None:
        """Measure its next repeat; after the last one, write the result and let the run go."""
        self._attempt(self._take_turn)

    def interrupt(self) -> None:
        """Write the result of a run that waits for its next repeat, which the same command then goes on with."""
        if self.goes_on and self._turns:
            with suppress(KeyboardInterrupt, LlmexpError, OSError):
                self._turns.throw(Waited())

    def release(self) -> None:
        """Let other drivers have the run."""
        self.goes_on = False
        self._lock.close()

    def _attempt(self, work: Callable[[], None]) -> None:
        """Do a part of the run's work; an error, or another driver that has the run, ends it here."""

        def work_of_one() -> bool:
            try:
                with records_named(self._folder):
                    work()
            except RunHeldError as held:
                print(f"{self._folder.path.name}: {held}", flush=True)
                return False
            return True

        self.well = attempted(work_of_one)
        if not self.well:
            self.release()

    def _hold(self) -> None:
        if not is_answered(self._plan, self._folder, self._began):
            self._lock.enter_context(only_attempt(self._folder))
            self.goes_on = is_wanted(self._plan, self._folder, self._began)
        if not self.goes_on:
            keep(self._plan, self._folder, self._began)
            self.release()

    def _take_turn(self) -> None:
        from llmexp.launch.run import take_turns
        from llmexp.record.mlflow import followed

        if self._turns is None:
            self._turns = take_turns(with_predicted_skip(self._plan, self._folder), self._folder, "interleaved")
        try:
            with followed(self._plan, self._folder):
                next(self._turns)
        except StopIteration:
            self.release()
            draw_and_record(self._plan, self._folder)
