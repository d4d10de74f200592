"""The trials of a search in the journal of the sweep's folder, which any number of drivers share.

A driver asks for a trial while it holds a lock, so that no two drivers have the same one. It names itself in its trial,
and holds a lock of its own as long as it lives. The trial of a driver that has died is told as failed by the next
driver that asks, and its point is tried again.
"""

from __future__ import annotations

import json
import shutil
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from llmexp.errors import ConfigError
from llmexp.record.lock import acquire, acquire_waiting, living_holder
from llmexp.sweep.search.sampling import distribution_of, pruner_of, sampler_of, typed_value
from llmexp.sweep.search.space import Dimension, points_of
from llmexp.sweep.search.trial import AskedTrial, SearchGoal, SearchOptions, SearchTrial, TrialEnd, TrialStanding

JOURNAL, _LOCKS = "search.journal", ".search"
# A point whose drivers die so often is given up: it may be what ends them.
_MOST_TRIES = 3
# What a trial's attributes in the journal say of it.
_DRIVER, _STANDING, _REASON, _RUN, _WORDS = "driver", "standing", "reason", "run", "words"
_AGAIN, _TRIES = "again", "tries"
_STATES: Mapping[TrialStanding, TrialState] = {
    "complete": TrialState.COMPLETE,
    # Optuna takes these for worse than any complete trial, and keeps away from them.
    **dict.fromkeys(("pruned", "diverged", "oom"), TrialState.PRUNED),
}


class SharedStudy:
    """The study of a sweep's folder, for one driver."""

    def __init__(
        self, folder: Path, asked: Mapping[str, Any], goal: SearchGoal, space: Sequence[Dimension], steps: int
    ) -> None:
        """Open the study, or begin it; `asked` is what is searched, and trials have so many steps.

        Raises ConfigError where the folder's search is another one.
        """
        self._locks, self._driver = folder / _LOCKS, uuid.uuid4().hex
        self._space, self._goal, self._steps = space, goal, steps
        self._trials: dict[int, optuna.Trial] = {}
        folder.mkdir(parents=True, exist_ok=True)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        with self._alone():
            self._study = _opened(folder, goal)
            known = self._study.user_attrs.get("asked")
            if known is None:
                self._study.set_user_attr("asked", dict(asked))
            elif known != json.loads(json.dumps(asked)):
                raise ConfigError(f"{folder} has another search{_difference(known, asked)}: choose another sweep.name")

    @contextmanager
    def driving(self) -> Iterator[None]:
        """Show other drivers within the block that this one lives."""
        own = self._locks / self._driver
        try:
            with acquire(own):
                yield
        finally:
            shutil.rmtree(own, ignore_errors=True)

    def ask(self, options: SearchOptions) -> AskedTrial | None:
        """Return the next trial; None where there are enough, or every point was tried."""
        with self._alone():
            self._tell_of_the_dead()
            trials = self._study.get_trials(deepcopy=False)
            counted = _counted(trials)
            enough = len(counted) >= min(options.trials, points_of(self._space) or options.trials)
            if enough and not any(trial.state is TrialState.WAITING for trial in trials):
                return None
            tried = [dict(trial.params) for trial in counted]
            self._study.sampler = sampler_of(options.sampler, options.seed, self._space, tried)
            self._study.pruner = pruner_of(options.pruner_for(self._goal), self._steps)
            trial = self._study.ask({dimension.key: distribution_of(dimension) for dimension in self._space})
            trial.set_user_attr(_DRIVER, self._driver)
        self._trials[trial.number] = trial
        return AskedTrial(trial.number, _point(trial.params))

    def note_run(self, asked: AskedTrial, run: str, words: Sequence[str]) -> None:
        """Note which run a trial is, and what starts it."""
        trial = self._trials[asked.number]
        trial.set_user_attr(_RUN, run)
        trial.set_user_attr(_WORDS, list(words))

    def is_worse(self, asked: AskedTrial, step: int, value: float) -> bool:
        """Note a trial's value after a step, and tell whether it is worse than that of others there."""
        trial = self._trials[asked.number]
        trial.report(value, step)
        return trial.should_prune()

    def tell(self, asked: AskedTrial, end: TrialEnd) -> None:
        """Note how a trial ended, unless another driver took this one for dead meanwhile."""
        trial = self._trials.pop(asked.number)
        if self._study.get_trials(deepcopy=False)[asked.number].state.is_finished():
            return
        trial.set_user_attr(_STANDING, end.standing)
        trial.set_user_attr(_REASON, end.reason)
        state = _STATES.get(end.standing, TrialState.FAIL)
        self._study.tell(trial.number, end.value, state, skip_if_finished=True)

    def give_up(self, asked: AskedTrial) -> None:
        """Tell that this driver does not end a trial, whose point the next one tries again."""
        with self._alone():
            self._tell_as_dead(self._study.get_trials(deepcopy=False)[asked.number])

    def others_at_work(self) -> int:
        """Return the number of trials that other, living drivers measure; the rest is to be asked for again."""
        running = self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        return sum(self._lives(trial) for trial in running)

    def has_unfinished(self) -> bool:
        """Tell whether a trial is still to be ended by this driver, because its own has died."""
        unfinished = self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING, TrialState.WAITING))
        return any(trial.state is TrialState.WAITING or not self._lives(trial) for trial in unfinished)

    def trials(self) -> list[SearchTrial]:
        """Return all trials by their numbers."""
        return [_searched(trial) for trial in self._study.get_trials(deepcopy=False)]

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let no other driver ask for a trial within the block."""
        with acquire_waiting(self._locks / "asking", lambda: None):
            yield

    def _lives(self, trial: FrozenTrial) -> bool:
        driver = trial.user_attrs.get(_DRIVER)
        return driver is not None and living_holder(self._locks / str(driver)) is not None

    def _tell_of_the_dead(self) -> None:
        """Tell of trials whose drivers have died; while the lock is held, one without a driver is of such a one."""
        for trial in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if not self._lives(trial):
                self._tell_as_dead(trial)

    def _tell_as_dead(self, trial: FrozenTrial) -> None:
        """Let its point be tried again, then tell it as failed: killed between the two, the next driver goes on."""
        tries = int(trial.user_attrs.get(_TRIES, 1))
        params = _params(trial)
        if params and tries < _MOST_TRIES and trial.number not in _tried_again(self._study.get_trials(deepcopy=False)):
            self._study.enqueue_trial(params, {_AGAIN: trial.number, _TRIES: tries + 1})
        self._study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)


def _opened(folder: Path, goal: SearchGoal) -> optuna.Study:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)  # the journal, before Optuna 5
        storage = JournalStorage(JournalFileBackend(str(folder / JOURNAL)))
        return optuna.create_study(
            storage=storage, study_name=folder.name, direction=goal.direction, load_if_exists=True
        )


def _difference(known: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    """Name the first part in which the folder's search differs."""
    parts = [name for name in asked if known.get(name) != json.loads(json.dumps(asked[name]))]
    return f", whose {parts[0]} is {json.dumps(known.get(parts[0]))} and not {json.dumps(asked[parts[0]])}" * bool(
        parts
    )


def _tried_again(trials: Sequence[FrozenTrial]) -> set[int]:
    """Return the numbers of the trials whose points later ones try again."""
    return {int(trial.user_attrs[_AGAIN]) for trial in trials if _AGAIN in trial.user_attrs}


def _counted(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """Return the trials that were begun, apart from those that are tried again, or died before they had a point."""
    again = _tried_again(trials)
    begun = [trial for trial in trials if trial.state is not TrialState.WAITING and trial.number not in again]
    return [trial for trial in begun if trial.params or trial.state is not TrialState.FAIL]


def _params(trial: FrozenTrial) -> dict[str, Any]:
    """Return a trial's point, also of one that waits to be tried."""
    return dict(trial.params or trial.system_attrs.get("fixed_params", {}))


def _point(params: Mapping[str, Any]) -> dict[str, str]:
    return {name: typed_value(value) for name, value in params.items()}


def _searched(trial: FrozenTrial) -> SearchTrial:
    told = trial.user_attrs
    if trial.state is TrialState.FAIL:
        standing: TrialStanding = told.get(_STANDING, "died")
    elif trial.state.is_finished():
        standing = told.get(_STANDING, "complete")
    else:
        standing = "running" if trial.state is TrialState.RUNNING else "waiting"
    return SearchTrial(
        number=trial.number,
        standing=standing,
        point=_point(_params(trial)),
        value=trial.value if trial.state is TrialState.COMPLETE else None,
        reason=told.get(_REASON, "its driver ended before it did" if standing == "died" else ""),
        run=told.get(_RUN, ""),
        words=told.get(_WORDS, ()),
    )
