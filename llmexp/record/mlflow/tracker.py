"""One experiment of an MLflow store: how runs are found, written and removed in it."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from llmexp.errors import RecordError
from llmexp.record.mlflow.content import DIGEST_TAG, KIND_TAG, PARENT_TAG, RUN_TAG, SOURCE, SWEEP_TAG, RunContent
from llmexp.record.mlflow.store import artifact_root, connect
from llmexp.record.redact import redact

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

NOTE_TAG, EXPERIMENT_KIND_TAG = "mlflow.note.content", "mlflow.experimentKind"
# Limits of MLflow's API: values in one call, characters in a tag.
PARAMS_PER_CALL, METRICS_PER_CALL, LONGEST_TAG = 100, 1000, 8000
_TEXT_SUFFIXES = (".json", ".jsonl", ".txt", ".md", ".csv", ".log", ".diff")


class Tracker:
    """Writes runs. Once time.monotonic() has passed `deadline_s` every further call raises RecordError."""

    def __init__(self, uri: str, experiment: str, deadline_s: float = math.inf) -> None:
        self._deadline_s = deadline_s
        self._connected = connect(uri, deadline_s - time.monotonic())
        self._experiment_id = self._experiment(experiment, artifact_root(uri))

    @property
    def _client(self) -> MlflowClient:
        if time.monotonic() > self._deadline_s:
            raise RecordError("it took longer than tracking.timeout_s")
        return self._connected

    def find(self, sweep: str, run_id: str) -> list[Run]:
        """All MLflow runs of one run of a sweep, oldest first."""
        return self._search({SWEEP_TAG: sweep, RUN_TAG: run_id})

    def write(self, content: RunContent) -> None:
        """Write one run below its sweep's parent; the digest comes last, so that a run that was cut off is known by the lack of it."""
        start_ms, end_ms = round(1e3 * content.window.start_s), round(1e3 * content.window.end_s)
        parent = self._parent(content.sweep, start_ms)
        tags = {name: redact(value)[:LONGEST_TAG] for name, value in content.tags.items()} | {PARENT_TAG: parent}
        run_id = self._client.create_run(self._experiment_id, start_ms, tags, run_name=content.name).info.run_id
        self._log_values(run_id, content)
        self._log_files(run_id, {path.relative_to(content.folder.path).as_posix(): path for path in content.files()}, content.note)
        self._client.log_text(run_id, redact(json.dumps(content.environment, indent=2)), "environment.json")
        self._client.set_terminated(run_id, content.mlflow_status, end_ms)
        self._client.set_tag(run_id, DIGEST_TAG, content.digest)
        self._client.set_terminated(parent, "FINISHED", end_ms)

    def write_report(self, sweep: str, files: Sequence[Path]) -> None:
        """Put files into the sweep's parent run; its page shows the Markdown among them, and the pictures."""
        parent = self._parent(sweep, round(1e3 * time.time()))
        note = "\n\n".join(path.read_text() for path in files if path.suffix == ".md")
        self._log_files(parent, {f"report/{path.name}": path for path in files}, note)

    def remove(self, runs: Sequence[Run]) -> None:
        """Put runs into MLflow's bin."""
        for run in runs:
            self._client.delete_run(run.info.run_id)

    def _parent(self, sweep: str, start_ms: int) -> str:
        """The MLflow id of a sweep's parent, made where there is none; where two drivers made one each, the older takes the other's children."""
        parents = [run.info.run_id for run in self._search({SWEEP_TAG: sweep, KIND_TAG: "sweep"})]
        if not parents:
            tags = {SWEEP_TAG: sweep, "sweep": sweep, KIND_TAG: "sweep"} | SOURCE
            return str(self._client.create_run(self._experiment_id, start_ms, tags, run_name=sweep).info.run_id)
        for other in parents[1:]:
            for child in self._search({PARENT_TAG: other}):
                self._client.set_tag(child.info.run_id, PARENT_TAG, parents[0])
            self._client.delete_run(other)
        return str(parents[0])

    def _log_files(self, run_id: str, files: Mapping[str, Path], note: str) -> None:
        """Copy files to artifacts of the given names, secrets left out of texts; describe the run by `note` and the pictures among them."""
        for name, path in files.items():
            text = path.read_text(errors="replace") if path.suffix in _TEXT_SUFFIXES else ""
            clean = redact(text)
            if clean != text:
                self._client.log_text(run_id, clean, name)
            else:
                self._client.log_artifact(run_id, str(path), name.rpartition("/")[0] or None)
        # The server that shows the page also serves its artifacts, under this address.
        pictures = [f"![{path.stem}](get-artifact?path={quote(name)}&run_uuid={run_id})" for name, path in files.items() if path.suffix == ".png"]
        self._client.set_tag(run_id, NOTE_TAG, _whole_lines(redact(note), pictures))

    def _log_values(self, run_id: str, content: RunContent) -> None:
        from mlflow.entities import Metric, Param

        params = [Param(name, redact(value)) for name, value in content.params.items()]
        metrics = [Metric(point.name, point.value, point.at_ms, point.step) for point in content.points()]
        for chunk in _chunks(params, PARAMS_PER_CALL):
            self._client.log_batch(run_id, params=chunk)
        for chunk in _chunks(metrics, METRICS_PER_CALL):
            self._client.log_batch(run_id, metrics=chunk)

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


def _whole_lines(note: str, pictures: Sequence[str]) -> str:
    """Join text and pictures to what a tag can hold, cut between lines."""
    lines = [*note.splitlines(), "", *pictures]
    room = LONGEST_TAG - len("\n…")
    fitting = sum(1 for end in accumulate(len(line) + 1 for line in lines) if end <= room)
    return "\n".join(lines if fitting == len(lines) else [*lines[:fitting], "…"])


def _chunks(values: Sequence[Any], size: int) -> Iterator[list[Any]]:
    rest = iter(values)
    while chunk := list(islice(rest, size)):
        yield chunk
