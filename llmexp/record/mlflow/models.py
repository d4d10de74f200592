"""MLflow's logged models: one for each adapter or model that a run kept, with what loads it and generates."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from llmexp.record.mlflow.artifacts import Artifacts
from llmexp.record.mlflow.experiment import Experiment
from llmexp.record.mlflow.model_files import WEIGHTS, model_files, model_note
from llmexp.record.mlflow.tags import NOTE_TAG
from llmexp.record.redact import redact
from llmexp.record.trackers.content import RunContent
from llmexp.record.trackers.kept import KeptWeights

if TYPE_CHECKING:
    from mlflow.entities import LoggedModel, Metric

_UNNAMEABLE = re.compile(r"[/:.%\"']")


class Models:
    """The models of one experiment; each belongs to the run that made it, and is removed with it."""

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment

    def write(self, run_id: str, content: RunContent, step: int) -> None:
        """Write the run's models, which were made at that step, and what was measured of them."""
        if not content.kept:
            return
        from mlflow.entities import LoggedModelOutput

        self.remove(run_id)  # what an interrupted writing of this run has left
        ids = [self._write(run_id, content, kept) for kept in content.kept]
        self._experiment.client.log_outputs(run_id, [LoggedModelOutput(model_id, step) for model_id in ids])
        self._experiment.client.log_batch(run_id, [each for model_id in ids for each in _metrics(content, model_id)])

    def remove(self, run_id: str) -> None:
        """Delete the models of a run."""
        wanted = f"source_run_id = '{run_id}'"
        for model in self._experiment.client.search_logged_models([self._experiment.id], wanted):
            self._experiment.client.delete_logged_model(model.model_id)

    def _write(self, run_id: str, content: RunContent, kept: KeptWeights) -> str:
        client = self._experiment.client
        tags = {"kind": kept.kind, "folder": str(kept.folder.resolve()), "base": kept.base}
        model = client.create_logged_model(
            self._experiment.id,
            name=_UNNAMEABLE.sub("-", " ".join((*content.plan.name_fields.values(), kept.kind))),
            source_run_id=run_id,
            tags={name: redact(value) for name, value in tags.items() if value},
            params={name: redact(value) for name, value in content.params.items()},
            model_type=kept.kind,
        )
        client.set_logged_model_tags(model.model_id, {NOTE_TAG: redact(model_note(kept, model.model_id))})
        place = self._artifacts(model)
        for name, text in model_files(content, kept, run_id, model.model_id).items():
            place.write(redact(text), name)
        if kept.is_copied:
            place.copy({f"{WEIGHTS}/{name}": path for name, path in kept.files.items()})
        client.finalize_logged_model(model.model_id, "READY")
        return str(model.model_id)

    def _artifacts(self, model: LoggedModel) -> Artifacts:
        def send(path: str, folder: str | None) -> None:
            with TemporaryDirectory() as scratch:  # MLflow 3.7 takes no folder with a file
                place = Path(scratch, folder or "", Path(path).name)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.symlink_to(Path(path).resolve())
                self._experiment.client.log_model_artifacts(model.model_id, scratch)

        return Artifacts(self._experiment.local_folder(model.artifact_location), send)


def _metrics(content: RunContent, model_id: str) -> Iterator[Metric]:
    """Yield what was measured; MLflow would show what is no number, such as a diverged loss, as 0."""
    from mlflow.entities import Metric

    at_ms, data = round(1e3 * content.window.end_s), content.plan.dataset
    of = {"dataset_name": data.name, "dataset_digest": data.digest} if data else {}
    for name, value in content.means.items():
        if isfinite(value):
            yield Metric(name, value, at_ms, 0, model_id=model_id, **of)
