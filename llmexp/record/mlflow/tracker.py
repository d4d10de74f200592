"""One experiment of an MLflow store: how runs are found, written and removed in it."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from llmexp.errors import RecordError
from llmexp.record.mlflow.content import DIGEST_TAG, KIND_TAG, PARENT_TAG, RUN_TAG, SOURCE, SWEEP_TAG, RunContent
from llmexp.record.mlflow.lookup import Recorded, known_runs
from llmexp.record.mlflow.store import artifact_root, connect, database_path
from llmexp.record.redact import redact

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run, RunInfo

NOTE_TAG, EXPERIMENT_KIND_TAG = "mlflow.note.content", "mlflow.experimentKind"
LONGEST_TAG = 8000  # characters, a limit of MLflow's API
_TEXT_SUFFIXES = (".json", ".jsonl", ".txt", ".md", ".csv", ".log", ".diff")


class Tracker:
    """Writes runs. Once time.monotonic() has passed `deadline_s` every further call raises RecordError.

    Every call to a SQLite store waits for the disk several times, so all that a run holds goes into as few calls as MLflow lets it.
    """

    def __init__(self, uri: str, experiment: str, deadline_s: float = math.inf) -> None:
        self._deadline_s = deadline_s
        self._connected = connect(uri, deadline_s - time.monotonic())
        self._local_artifacts = artifact_root(uri)
        self._experiment_id = self._experiment(experiment, self._local_artifacts)
        self._known = known_runs(database, self._experiment_id) if (database := database_path(uri)) else None
        self._sweeps: dict[str, dict[str, list[Recorded]]] = {}
        self._parents: dict[str, str] = {}
        self._ended_ms: dict[str, int] = {}

    @property
    def _client(self) -> MlflowClient:
        if time.monotonic() > self._deadline_s:
            raise RecordError("it took longer than tracking.timeout_s")
        return self._connected

    def find(self, sweep: str, run_id: str, among_many: bool) -> list[Recorded]:
        """All MLflow runs of one run of a sweep, oldest first; a server is asked about the whole sweep at once where it is one among many."""
        if self._known is not None:
            return self._known.get((sweep, run_id), [])
        if not among_many:
            return [_recorded(run) for run in self._search({SWEEP_TAG: sweep, RUN_TAG: run_id})]
        if sweep not in self._sweeps:
            self._sweeps[sweep] = {}
            for run in self._search({SWEEP_TAG: sweep, KIND_TAG: "run"}):
                self._sweeps[sweep].setdefault(run.data.tags.get(RUN_TAG, ""), []).append(_recorded(run))
        return self._sweeps[sweep].get(run_id, [])

    def write(self, content: RunContent) -> None:
        """Write one run below its sweep's parent; the digest comes last, so that a run that was cut off is known by the lack of it."""
        start_ms, end_ms = round(1e3 * content.window.start_s), round(1e3 * content.window.end_s)
        parent = self._parent(content.sweep, start_ms)
        tags = {name: value[:LONGEST_TAG] for name, value in _redacted(content.tags).items()} | {PARENT_TAG: parent}
        run = self._client.create_run(self._experiment_id, start_ms, tags, run_name=content.name).info
        self._log_values(run.run_id, content)
        files = {path.relative_to(content.folder.path).as_posix(): path for path in content.files()}
        self._log_files(run, files)
        self._log_text(run, redact(json.dumps(content.environment, indent=2)), "environment.json")
        self._client.set_terminated(run.run_id, content.mlflow_status, end_ms)
        self._set_tags(run.run_id, {NOTE_TAG: _note(run.run_id, content.note, files), DIGEST_TAG: content.digest})
        self._ended_ms[parent] = max(end_ms, self._ended_ms.get(parent, 0))

    def end_sweeps(self) -> None:
        """Say of the sweeps whose runs were written when the last of those ended."""
        for parent, end_ms in self._ended_ms.items():
            self._client.set_terminated(parent, "FINISHED", end_ms)

    def write_report(self, sweep: str, files: Sequence[Path]) -> None:
        """Put files into the sweep's parent run; its page shows the Markdown among them, and the pictures."""
        parent = self._parent(sweep, round(1e3 * time.time()))
        note = "\n\n".join(path.read_text() for path in files if path.suffix == ".md")
        named = {f"report/{path.name}": path for path in files}
        self._log_files(self._client.get_run(parent).info, named)
        self._set_tags(parent, {NOTE_TAG: _note(parent, note, named)})

    def remove(self, runs: Sequence[Recorded]) -> None:
        """Put runs into MLflow's bin."""
        for run in runs:
            self._client.delete_run(run.run_id)

    def _parent(self, sweep: str, start_ms: int) -> str:
        """The MLflow id of a sweep's parent, looked up or made once."""
        if sweep not in self._parents:
            self._parents[sweep] = self._only_parent(sweep, start_ms)
        return self._parents[sweep]

    def _only_parent(self, sweep: str, start_ms: int) -> str:
        """Make a parent where there is none; where two drivers made one each, the older takes the other's children."""
        parents = [run.info.run_id for run in self._search({SWEEP_TAG: sweep, KIND_TAG: "sweep"})]
        if not parents:
            tags = {SWEEP_TAG: sweep, "sweep": sweep, KIND_TAG: "sweep"} | SOURCE
            made = str(self._client.create_run(self._experiment_id, start_ms, tags, run_name=sweep).info.run_id)
            self._client.set_terminated(made, "FINISHED", start_ms)
            return made
        for other in parents[1:]:
            for child in self._search({PARENT_TAG: other}):
                self._client.set_tag(child.info.run_id, PARENT_TAG, parents[0])
            self._client.delete_run(other)
        return str(parents[0])

    def _log_files(self, run: RunInfo, files: Mapping[str, Path]) -> None:
        """Copy files to artifacts of the given names, secrets left out of texts."""
        for name, path in files.items():
            text = path.read_text(errors="replace") if path.suffix in _TEXT_SUFFIXES else ""
            clean = redact(text)
            if clean != text:
                self._log_text(run, clean, name)
            elif folder := self._artifacts_here(run):
                _place(folder, name).write_bytes(path.read_bytes())
            else:
                self._client.log_artifact(run.run_id, str(path), name.rpartition("/")[0] or None)

    def _log_text(self, run: RunInfo, text: str, name: str) -> None:
        if folder := self._artifacts_here(run):
            _place(folder, name).write_text(text)
        else:
            self._client.log_text(run.run_id, text, name)

    def _artifacts_here(self, run: RunInfo) -> Path | None:
        """The folder that MLflow itself would copy artifacts to, one by one and with a look at its database each time; None elsewhere."""
        here = self._local_artifacts is not None and run.artifact_uri.startswith(f"{self._local_artifacts}/")
        return Path(run.artifact_uri) if here else None

    def _log_values(self, run_id: str, content: RunContent) -> None:
        from mlflow.entities import Metric, Param

        params = [Param(name, value) for name, value in _redacted(content.params).items()]
        metrics = [Metric(point.name, point.value, point.at_ms, point.step) for point in content.points()]
        self._client.log_batch(run_id, metrics, params)

    def _set_tags(self, run_id: str, tags: Mapping[str, str]) -> None:
        from mlflow.entities import RunTag

        self._client.log_batch(run_id, tags=[RunTag(name, value) for name, value in tags.items()])

    def _search(self, tags: dict[str, str]) -> list[Run]:
        wanted = " and ".join(f"tags.`{name}` = '{value}'" for name, value in tags.items())
        found: list[Run] = []
        token = None
        while True:
            page = self._client.search_runs([self._experiment_id], wanted, order_by=["start_time ASC"], page_token=token)
            found += page
            token = page.token
            if not token:
                return found

    def _experiment(self, name: str, artifacts: str | None) -> str:
        from mlflow.exceptions import MlflowException

        found = self._client.get_experiment_by_name(name)
        if found is None:
            try:
                return str(self._client.create_experiment(name, artifacts, {EXPERIMENT_KIND_TAG: "custom_model_development"}))
            except MlflowException:  # perhaps another driver was faster
                found = self._client.get_experiment_by_name(name)
                if found is None:
                    raise
        return str(found.experiment_id)


def _recorded(run: Run) -> Recorded:
    return Recorded(run.info.run_id, run.data.tags.get(DIGEST_TAG))


def _redacted(values: Mapping[str, str]) -> Mapping[str, str]:
    """Hide secrets in values, looking at each alone only where there is one: looking takes longer than most values are."""
    together = "\n".join(values.values())
    return values if redact(together) == together else {name: redact(value) for name, value in values.items()}


def _place(folder: Path, name: str) -> Path:
    place = folder / name
    place.parent.mkdir(parents=True, exist_ok=True)
    return place


def _note(run_id: str, text: str, files: Mapping[str, Path]) -> str:
    """What describes a run: text, and the pictures among its files, which the server that shows the page serves under this address."""
    pictures = [f"![{path.stem}](get-artifact?path={quote(name)}&run_uuid={run_id})" for name, path in files.items() if path.suffix == ".png"]
    return _whole_lines(redact(text), pictures)


def _whole_lines(note: str, pictures: Sequence[str]) -> str:
    """Join text and pictures to what a tag can hold, cut between lines."""
    lines = [*note.splitlines(), "", *pictures]
    room = LONGEST_TAG - len("\n…")
    fitting = sum(1 for end in accumulate(len(line) + 1 for line in lines) if end <= room)
    return "\n".join(lines if fitting == len(lines) else [*lines[:fitting], "…"])
