"""A tracker that finds, writes and removes the runs of folders in one experiment of an MLflow store."""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from llmexp.errors import RecordError
from llmexp.record.mlflow.artifacts import Artifacts
from llmexp.record.mlflow.data_sets import log_data
from llmexp.record.mlflow.experiment import Experiment
from llmexp.record.mlflow.lookup import Recorded, known_runs
from llmexp.record.mlflow.models import Models
from llmexp.record.mlflow.overview import OF_TRAINING, Overview
from llmexp.record.mlflow.parents import Parents
from llmexp.record.mlflow.store import only_writer, resolve_uri
from llmexp.record.mlflow.tags import (
    ATTEMPT_TAG,
    DIGEST_TAG,
    KIND_TAG,
    NOTE_TAG,
    PARENT_TAG,
    RUN_TAG,
    SWEEP_TAG,
    status_of,
    tags_of,
)
from llmexp.record.mlflow.traces import Traces
from llmexp.record.redact import redact, redact_values
from llmexp.record.trackers.content import RunContent, attempt_at
from llmexp.record.trackers.points import Point
from llmexp.schema import TrackingConfig

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run, RunInfo

# Drivers that write the same run at the same time agree after two or three looks.
MOST_LOOKS = 10
PAUSE_S, LONGEST_PAUSE_S = 0.05, 2.0
LONGEST_TAG = 8000  # characters, a limit of MLflow's API
LONGEST_REASON = 200


class Tracker:
    """A writer of runs. Once time.monotonic() has passed `deadline_s`, every further call raises RecordError.

    Every call to a SQLite store waits for the disk several times, so the content of a run is written in as few calls as
    MLflow allows.
    """

    def __init__(self, uri: str, experiment: str, deadline_s: float = math.inf) -> None:
        self._uri, self._experiment = uri, Experiment(uri, experiment, deadline_s)
        self._parents = Parents(self._experiment)
        self._models, self._traces = Models(self._experiment), Traces(self._experiment)
        self._known = known_runs(self._experiment.database, experiment) if self._experiment.database else None
        self._sweeps: dict[str, dict[str, list[Recorded]]] = {}

    @property
    def _client(self) -> MlflowClient:
        return self._experiment.client

    def record(self, content: RunContent, among_many: bool) -> bool:
        """Bring one run up to date, and return whether it was written; other copies are removed after the writing.

        Where other drivers may write the same run meanwhile, it looks again until there is one copy. Only a driver that
        has seen a complete copy removes the others, so that drivers which overlap do not remove each other's work for
        ever. Of two complete copies, the older one stays. What was begun while the run went on is completed.
        """
        digest, written = content.digest, False
        found = self._find(content.sweep, content.id, among_many)
        for look in range(MOST_LOOKS):
            if [run.digest for run in found] == [digest]:
                return written
            complete = [run for run in found if run.digest == digest][:1]
            if not complete:
                complete = self._begun(content, found)
                self._write(content, *complete)
                written = True
            if digest in [run.digest for run in complete] or self._experiment.is_ours_alone:
                for run in found:
                    if run not in complete:
                        self._delete(run.run_id)
            if self._experiment.is_ours_alone:
                return written
            if look:  # drivers that go in step may still remove each other's copies
                time.sleep(random.uniform(0, min(LONGEST_PAUSE_S, PAUSE_S * 2**look)))
            found = self._search(content.sweep, content.id)
        raise RecordError(
            f"the server does not keep what it is given: run {content.id} is not one run after {MOST_LOOKS} looks"
        )

    def begin(self, content: RunContent) -> tuple[str, Collection[str]]:
        """Return the MLflow id of a run that goes on, and the metrics that it has; it is made where there is none."""
        attempt = {ATTEMPT_TAG: attempt_at(content.folder)}
        found = self._experiment.search({SWEEP_TAG: content.sweep, RUN_TAG: content.id} | attempt)
        if found:
            return str(found[0].info.run_id), found[0].data.metrics
        run = self._create(content, attempt)
        self._log_values(run.run_id, content.params, [])
        self._experiment.set_tags(run.run_id, {NOTE_TAG: _note(run.run_id, content.note, {})})
        return str(run.run_id), ()

    def page_of(self, run_id: str) -> str:
        """Return the address of a run's page where a server shows it; "" for any other store."""
        place = f"#/experiments/{self._experiment.id}/runs/{run_id}/model-metrics?{OF_TRAINING}"
        return f"{redact(self._uri).rstrip('/')}/{place}" if self._uri.startswith("http") else ""

    def add(self, run_id: str, points: Sequence[Point]) -> None:
        """Add points to a run that goes on; those that it has already change nothing."""
        self._log_values(run_id, {}, points)

    def end_sweeps(self) -> None:
        """Set the end of each sweep whose runs were written to the end of its last run."""
        self._parents.end()

    def write_report(self, sweep: str, files: Sequence[Path], digest: str, overview: Overview) -> None:
        """Put files and the best figures into the sweep's parent run, and the columns into the experiment's view.

        The run's page shows the Markdown and pictures among the files. The digest is kept with them, to tell later
        whether they have changed.
        """
        text = "\n\n".join(path.read_text() for path in files if path.suffix == ".md")
        named = {f"report/{path.name}": path for path in files}
        at_ms = round(1e3 * time.time())
        best = [Point(name, value, at_ms, 0) for name, value in overview.best.items()]

        def write(parent: str) -> None:
            self._artifacts(self._client.get_run(parent).info).copy(named)
            self._log_values(parent, {}, best)
            note = _sweeps_note(parent, overview.words, text, named)
            self._experiment.set_tags(parent, {NOTE_TAG: note, DIGEST_TAG: digest})

        self._parents.update(sweep, at_ms, write)
        self._experiment.show(overview.columns)

    def _find(self, sweep: str, run_id: str, among_many: bool) -> list[Recorded]:
        """Return all MLflow runs of one run of a sweep, oldest first.

        A server is asked about the whole sweep at once where the run is one among many.
        """
        if self._known is not None:
            return self._known.get((sweep, run_id), [])
        if not among_many:
            return self._search(sweep, run_id)
        if sweep not in self._sweeps:
            self._sweeps[sweep] = {}
            for run in self._experiment.search({SWEEP_TAG: sweep, KIND_TAG: "run"}):
                self._sweeps[sweep].setdefault(run.data.tags.get(RUN_TAG, ""), []).append(_recorded(run))
        return self._sweeps[sweep].get(run_id, [])

    def _search(self, sweep: str, run_id: str) -> list[Recorded]:
        return [_recorded(run) for run in self._experiment.search({SWEEP_TAG: sweep, RUN_TAG: run_id})]

    def _begun(self, content: RunContent, found: Sequence[Recorded]) -> list[Recorded]:
        """Return the run that was begun while this attempt went on, unless it has other parameters, which stay."""
        attempt = attempt_at(content.folder)
        begun = [run for run in found if run.attempt == attempt and not run.digest] if attempt else []
        for run in begun[:1]:
            kept = self._client.get_run(run.run_id).data.params
            if kept.items() <= redact_values(content.params).items():
                return [run]
        return []

    def _write(self, content: RunContent, begun: Recorded | None = None) -> None:
        """Write one run below its sweep's parent, or complete the one that was begun, unless another driver removes it.

        The digest is written last, so a run without one was interrupted.
        """
        metrics, spans = content.points(), content.spans()  # before anything is written: they may be damaged
        end_ms = round(1e3 * content.window.end_s)
        run = self._create(content) if begun is None else self._client.get_run(begun.run_id).info
        self._parents.has_run_until(content.sweep, end_ms)

        def fill() -> None:
            if begun:
                self._experiment.set_tags(run.run_id, self._tags(content))
            log_data(self._client, run.run_id, content.plan.dataset)
            self._log_values(run.run_id, content.params, metrics)
            self._models.write(run.run_id, content, _last_step(content, metrics))
            files = {path.relative_to(content.folder.path).as_posix(): path for path in content.files()}
            self._artifacts(run).copy(files)
            self._artifacts(run).write(redact(json.dumps(content.environment, indent=2)), "environment.json")
            self._traces.write(run.run_id, spans)
            self._client.set_terminated(run.run_id, status_of(content), end_ms)
            self._experiment.set_tags(
                run.run_id, {NOTE_TAG: _note(run.run_id, content.note, files), DIGEST_TAG: content.digest}
            )

        if not self._experiment.unless_removed(run.run_id, fill):
            self._delete_beside(run.run_id)

    def _create(self, content: RunContent, more: Mapping[str, str] | None = None) -> RunInfo:
        start_ms, tags = round(1e3 * content.window.start_s), self._tags(content) | dict(more or {})
        return self._client.create_run(self._experiment.id, start_ms, tags, run_name=redact(content.name)).info

    def _tags(self, content: RunContent) -> dict[str, str]:
        parent = self._parents.of(content.sweep, round(1e3 * content.window.start_s))
        tags = redact_values(tags_of(content))
        return {name: value[:LONGEST_TAG] for name, value in tags.items()} | {PARENT_TAG: parent}

    def _delete(self, run_id: str) -> None:
        """Delete a run; what a driver that still writes it adds later is deleted by that driver, as it sees no run."""
        self._client.delete_run(run_id)
        self._delete_beside(run_id)

    def _delete_beside(self, run_id: str) -> None:
        self._models.remove(run_id)
        self._traces.remove(run_id)

    def _artifacts(self, run: RunInfo) -> Artifacts:
        def send(path: str, folder: str | None) -> None:
            self._client.log_artifact(run.run_id, path, folder)

        return Artifacts(self._experiment.local_folder(run.artifact_uri), send)

    def _log_values(self, run_id: str, params: Mapping[str, str], points: Sequence[Point]) -> None:
        from mlflow.entities import Metric, Param

        metrics = [Metric(point.name, point.value, point.at_ms, point.step) for point in points]
        self._client.log_batch(run_id, metrics, [Param(name, value) for name, value in redact_values(params).items()])


@contextmanager
def opened(tracking: TrackingConfig, outputs: Path, deadline_s: float) -> Iterator[Tracker]:
    """Open the tracker; every error inside the block is raised as RecordError."""
    uri = resolve_uri(tracking, outputs)
    try:
        with only_writer(uri):
            yield Tracker(uri, tracking.experiment, deadline_s)
    except RecordError:
        raise
    except Exception as error:  # mlflow passes on whatever its stores, drivers and HTTP raise
        first_line = (str(error) or type(error).__name__).splitlines()[0]
        raise RecordError(f"{redact(uri)}: {redact(first_line)[:LONGEST_REASON]}") from error


def _last_step(content: RunContent, points: Sequence[Point]) -> int:
    """Return the last step of the first repeat, at whose end weights are saved."""
    name = f"repeat.0/{content.plan.sample_name}_time_s"
    return max((point.step for point in points if point.name == name), default=0)


def _recorded(run: Run) -> Recorded:
    tags = run.data.tags
    return Recorded(run.info.run_id, tags.get(DIGEST_TAG), tags.get(ATTEMPT_TAG))


def _note(run_id: str, text: str, files: Mapping[str, Path]) -> str:
    """Return a run's description: a text, and the pictures among its files."""
    pictures = [f"![{name}]({address})" for name, address in _pictures(run_id, files)]
    return _whole_lines([*redact(text).splitlines(), "", *pictures])


def _sweeps_note(run_id: str, words: Sequence[str], text: str, files: Mapping[str, Path]) -> str:
    """Return a sweep's description: a few lines, of which MLflow's page shows three, then the report.

    Its pictures are links, since MLflow makes its page as wide as the widest picture.
    """
    links = ", ".join(f"[{name}]({address})" for name, address in _pictures(run_id, files))
    lines = [*words, f"pictures: {links}"] if links else words
    return _whole_lines(redact("\n".join([*(f"- {line}" for line in lines), "", text])).splitlines())


def _pictures(run_id: str, files: Mapping[str, Path]) -> list[tuple[str, str]]:
    """Return name and address of each picture, as the server that shows the page serves it."""
    return [
        (path.stem, f"get-artifact?path={quote(name)}&run_uuid={run_id}")
        for name, path in files.items()
        if path.suffix == ".png"
    ]


def _whole_lines(lines: Sequence[str]) -> str:
    """Join lines to at most what a tag can hold; a cut is between lines."""
    room = LONGEST_TAG - len("\n…")
    fitting = sum(1 for end in accumulate(len(line) + 1 for line in lines) if end <= room)
    return "\n".join(lines if fitting == len(lines) else [*lines[:fitting], "…"])
