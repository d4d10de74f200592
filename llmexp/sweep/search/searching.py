"""A search from its first trial to its last: it asks for points, measures their runs, and tells how they ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmexp.errors import ConfigError, RecordError
from llmexp.launch.early_end import ended_when
from llmexp.record.folder import RunFolder
from llmexp.record.plan import RunPlan
from llmexp.record.result import RunResult
from llmexp.record.sweep_order import note_order
from llmexp.record.writing import now
from llmexp.sweep.measuring import attempted, folder_of, measure
from llmexp.sweep.report import leave_report
from llmexp.sweep.run import check_store, learn
from llmexp.sweep.search.loss_watch import LossWatch
from llmexp.sweep.search.space import Dimension, SearchPoint, short_words
from llmexp.sweep.search.trial import (
    AskedTrial,
    SearchGoal,
    SearchOptions,
    SearchTrial,
    TrialEnd,
    best_first,
    end_of,
)
from llmexp.sweep.share import settle

if TYPE_CHECKING:
    from llmexp.sweep.search.study import SharedStudy

_LOOK_EVERY_S = 0.5


@dataclass(frozen=True)
class SearchSetup:
    """What is searched: `asked` tells it from other searches, and `plan_of` plans the run of a point."""

    goal: SearchGoal
    options: SearchOptions
    space: Sequence[Dimension]
    asked: Mapping[str, Any]
    first: RunPlan
    """The plan of a point, which shows what all of them share."""
    plan_of: Callable[[SearchPoint], RunPlan]

    @property
    def folder(self) -> Path:
        """The sweep's folder."""
        return self.first.folder.parent


@dataclass(frozen=True)
class Searched:
    """A search that has ended: its trials, the best one first."""

    goal: SearchGoal
    folder: Path
    trials: Sequence[SearchTrial]

    @property
    def best(self) -> SearchTrial | None:
        """The best trial; None where none is complete."""
        return next((trial for trial in self.trials if trial.standing == "complete"), None)

    @property
    def code(self) -> int:
        """The exit code: 0 where there is a best trial, and none failed."""
        return int(self.best is None or any(trial.standing == "failed" for trial in self.trials))


def run_search(setup: SearchSetup, show: Callable[[Searched], None]) -> Searched:
    """Measure trials until there are enough of all drivers, and show them; an interrupt shows those so far.

    Raises ConfigError, before anything starts, where the records cannot be kept or the folder's search is another.
    """
    check_store(setup.first)
    from llmexp.sweep.search.study import SharedStudy

    study = SharedStudy(setup.folder, setup.asked, setup.goal, setup.space, setup.first.samples)
    driver = _Driver(setup, study)
    try:
        with study.driving():
            driver.drive()
    finally:
        show(found := driver.found())
    _leave_behind(setup, found)
    return found


class _Driver:
    """This process's part of the search."""

    def __init__(self, setup: SearchSetup, study: SharedStudy) -> None:
        self._setup, self._study, self._began = setup, study, now()

    def found(self) -> Searched:
        """Return all trials as they stand."""
        return Searched(self._setup.goal, self._setup.folder, best_first(self._study.trials(), self._setup.goal))

    def drive(self) -> None:
        """Try points until there are enough, then wait for other drivers, whose trials this one takes if they die."""
        waits = False
        while True:
            if asked := self._study.ask(self._setup.options):
                self._try(asked)
                continue
            while others := self._study.others_at_work():
                if self._study.has_unfinished():
                    break
                if not waits:
                    print(f"waiting for {others} trial{'s' * (others > 1)} of other drivers", flush=True)
                waits = True
                time.sleep(_LOOK_EVERY_S)
            if not self._study.has_unfinished():
                return

    def _try(self, asked: AskedTrial) -> None:
        print(f"trial {asked.number}: {short_words(asked.point)}", flush=True)
        try:
            end = self._end_of(asked)
        except BaseException:
            self._study.give_up(asked)
            raise
        self._study.tell(asked, end)
        said = end.reason if end.standing == "pruned" else f"{end.standing}: {end.reason}"
        if end.value is not None:
            said = f"{self._setup.goal.metric} {end.value:.6g}"
        print(f"trial {asked.number}: {said}{self._best_so_far()}", flush=True)
        self._check_that_runs_have_the_metric(end)

    def _end_of(self, asked: AskedTrial) -> TrialEnd:
        """Measure the trial's run, or take the answer that its folder has."""
        try:
            plan = self._setup.plan_of(asked.point)
        except ConfigError as error:  # the ends and choices were planned; some of their combinations may not be
            return TrialEnd("failed", reason=str(error))
        folder = folder_of(plan)
        note_order([folder])
        self._study.note_run(asked, folder.path.name, plan.overrides)
        watch = LossWatch(plan, partial(self._study.is_worse, asked))
        prunes = self._setup.options.pruner_for(self._setup.goal) != "none"
        with ended_when(watch) if prunes else nullcontext():
            settle([folder], lambda _: [attempted(partial(measure, plan, folder, self._began))])
        return end_of(_result(folder), self._setup.goal, watch.reason)

    def _best_so_far(self) -> str:
        best = self.found().best
        return f" | best so far: trial {best.number}, {best.value:.6g}" if best else ""

    def _check_that_runs_have_the_metric(self, end: TrialEnd) -> None:
        """Raise RecordError where a run succeeded without the metric: more runs would not have it either."""
        if end.reason == f"its result has no {self._setup.goal.metric}":
            raise RecordError(f"the search ends: {end.reason}, so nothing tells which trial is best")


def _result(folder: RunFolder) -> RunResult | None:
    try:
        return folder.result()
    except RecordError:
        return None


def _leave_behind(setup: SearchSetup, found: Searched) -> None:
    """Write the sweep's report, and let its task take notice of the runs."""
    folders = [RunFolder(setup.folder / trial.run) for trial in found.trials if trial.run]
    if folders:
        learn([setup.first] * len(folders), folders)
        leave_report(setup.folder, setup.first.config.tracking)
