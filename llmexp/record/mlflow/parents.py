"""The parent runs of sweeps, one for each sweep, even where several drivers record it to a server independently."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from llmexp.errors import RecordError
from llmexp.record.mlflow.experiment import Experiment
from llmexp.record.mlflow.tags import KIND_TAG, PARENT_TAG, SOURCE, SWEEP_TAG

# Drivers that write one sweep at the same time agree after two or three looks.
MOST_LOOKS = 10


class Parents:
    """The parent runs that a driver uses: for each sweep the one that it found or made first.

    When a driver has written all runs, the oldest parent gets the children of the others. So one parent is left when
    the last driver has finished.
    """

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment
        self._used: dict[str, list[str]] = {}
        self._ended_ms: dict[str, int] = {}

    def of(self, sweep: str, start_ms: int) -> str:
        """Return the MLflow id of a sweep's parent, which is looked up or made once."""
        if sweep not in self._used:
            self._used[sweep] = [self._only_one(sweep, start_ms)]
        return self._used[sweep][-1]

    def has_run_until(self, sweep: str, end_ms: int) -> None:
        """Note the end time of a run of the sweep."""
        self._ended_ms[sweep] = max(end_ms, self._ended_ms.get(sweep, 0))

    def end(self) -> None:
        """Set the end of each sweep whose runs were written to the end of its last run."""
        for sweep, end_ms in self._ended_ms.items():
            self.update(sweep, end_ms, partial(self._end_at, end_ms))

    def _end_at(self, end_ms: int, parent: str) -> None:
        self._experiment.client.set_terminated(parent, "FINISHED", end_ms)

    def update(self, sweep: str, start_ms: int, work: Callable[[str], None]) -> None:
        """Do work with the sweep's one parent, again where another driver removed it meanwhile for an older one."""
        for _ in range(MOST_LOOKS):
            if not self._experiment.is_ours_alone:
                self._used[sweep] = [*self._used.get(sweep, []), self._only_one(sweep, start_ms)]
            parent = self.of(sweep, start_ms)
            if self._experiment.unless_removed(parent, partial(work, parent)):
                return
        raise RecordError(
            f"the server does not keep what it is given: the parent of sweep {sweep} is gone after {MOST_LOOKS} looks"
        )

    def _only_one(self, sweep: str, start_ms: int) -> str:
        """Return the oldest parent, with the children of all others moved to it; it is made where there is none."""
        parents = [str(run.info.run_id) for run in self._experiment.search({SWEEP_TAG: sweep, KIND_TAG: "sweep"})] or [
            self._make(sweep, start_ms)
        ]
        for other in parents[1:]:
            self._move_children(other, parents[0])
            self._experiment.client.delete_run(other)
        for other in {*parents[1:], *self._used.get(sweep, [])} - {parents[0]}:
            self._move_children(other, parents[0])  # children that came until it was removed
        return parents[0]

    def _make(self, sweep: str, start_ms: int) -> str:
        tags = {SWEEP_TAG: sweep, "sweep": sweep, KIND_TAG: "sweep"} | SOURCE
        made = str(self._experiment.client.create_run(self._experiment.id, start_ms, tags, run_name=sweep).info.run_id)
        self._experiment.client.set_terminated(made, "FINISHED", start_ms)
        return made

    def _move_children(self, parent: str, to: str) -> None:
        for child in (run.info.run_id for run in self._experiment.search({PARENT_TAG: parent})):
            self._experiment.unless_removed(child, partial(self._experiment.set_tags, child, {PARENT_TAG: to}))
