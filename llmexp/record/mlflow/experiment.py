"""One experiment of an MLflow store, with the few calls that the tracker needs, each before a deadline."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llmexp.errors import RecordError
from llmexp.record.mlflow.overview import VIEW_TAG, shared_view
from llmexp.record.mlflow.store import artifact_root, connect, database_path

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

# Some versions of MLflow's page go by this tag; that of 3.17 goes by `workflowType` in its address.
EXPERIMENT_KIND_TAG, KIND = "mlflow.experimentKind", "custom_model_development"
MOST_PAGES = 10_000


class Experiment:
    """The experiment of a name, which is made where there is none.

    Once time.monotonic() has passed `deadline_s`, every further call raises RecordError.
    """

    def __init__(self, uri: str, name: str, deadline_s: float = math.inf) -> None:
        self.uri, self._deadline_s = uri, deadline_s
        self._connected = connect(uri, deadline_s - time.monotonic())
        self.local_artifacts = artifact_root(uri)
        self.database = database_path(uri)
        self.id = self._find_or_make(name)

    @property
    def is_ours_alone(self) -> bool:
        """True where no other process writes meanwhile: `only_writer` ensures that for SQLite, not for a server."""
        return self.database is not None

    @property
    def client(self) -> MlflowClient:
        """MLflow's client; raises RecordError after the deadline."""
        if time.monotonic() > self._deadline_s:
            raise RecordError("it took longer than tracking.timeout_s")
        return self._connected

    def local_folder(self, address: str) -> Path | None:
        """Return the local folder at an address of artifacts; None where a server keeps them."""
        here = self.local_artifacts is not None and address.startswith(f"{self.local_artifacts}/")
        return Path(address) if here else None

    def search(self, tags: Mapping[str, str]) -> list[Run]:
        """Return all runs with these tags, oldest first, in the same order for every driver that asks."""
        wanted = " and ".join(f"tags.`{name}` = '{value}'" for name, value in tags.items())
        found: list[Run] = []
        token = None
        for _ in range(MOST_PAGES):
            page = self.client.search_runs([self.id], wanted, order_by=["start_time ASC"], page_token=token)
            found += page
            token = page.token
            if not token:
                return sorted(found, key=lambda run: (run.info.start_time, run.info.run_id))
        raise RecordError(f"the server's list of runs has no end: {MOST_PAGES} pages")

    def set_tags(self, run_id: str, tags: Mapping[str, str]) -> None:
        """Set several tags in one call."""
        from mlflow.entities import RunTag

        self.client.log_batch(run_id, tags=[RunTag(name, value) for name, value in tags.items()])

    def show(self, columns: Sequence[str]) -> None:
        """Keep these metrics as columns of the view of runs that `llmexp ui` opens."""
        kept = self.client.get_experiment(self.id).tags.get(VIEW_TAG)
        if columns and (view := shared_view(columns, kept)) != kept:
            self.client.set_experiment_tag(self.id, VIEW_TAG, view)

    def unless_removed(self, run_id: str, work: Callable[[], None]) -> bool:
        """Do work with a run; return False where another driver has removed the run meanwhile."""
        from mlflow.exceptions import MlflowException

        try:
            work()
        except MlflowException:
            if self.client.get_run(run_id).info.lifecycle_stage == "active":
                raise
            return False
        return True

    def _find_or_make(self, name: str) -> str:
        from mlflow.exceptions import MlflowException

        found = self.client.get_experiment_by_name(name)
        if found is None:
            try:
                tags = {EXPERIMENT_KIND_TAG: KIND}
                return str(self.client.create_experiment(name, self.local_artifacts, tags))
            except MlflowException:  # perhaps another driver was faster
                found = self.client.get_experiment_by_name(name)
                if found is None:
                    raise
        if EXPERIMENT_KIND_TAG not in found.tags:
            self.client.set_experiment_tag(found.experiment_id, EXPERIMENT_KIND_TAG, KIND)
        return str(found.experiment_id)
