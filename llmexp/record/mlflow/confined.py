"""Keeps MLflow's server to artifacts in the store's own folder: a store may name any folder of its owner's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from mlflow.exceptions import MlflowException
from mlflow.store.artifact import artifact_repository_registry as registry
from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository


def confine_to(folder: str) -> None:
    """Let this process serve local artifacts below `folder` only, links followed."""
    root = Path(folder).resolve()

    class Confined(LocalArtifactRepository):
        """A repository below the folder, which shows nothing that a link has elsewhere."""

        def __init__(self, artifact_uri: str, *rest: Any, **named: Any) -> None:
            super().__init__(artifact_uri, *rest, **named)
            self._check("")

        def list_artifacts(self, path: str | None = None) -> Any:
            self._check(path or "")
            found = super().list_artifacts(path)  # type: ignore[no-untyped-call]
            return [file for file in found if self._is_below(file.path)]

        def download_artifacts(self, artifact_path: str, dst_path: str | None = None) -> Any:
            self._check(artifact_path)
            return super().download_artifacts(artifact_path, dst_path)  # type: ignore[no-untyped-call]

        def get_local_path(self, artifact_path: str) -> Any:
            self._check(artifact_path)
            return super().get_local_path(artifact_path)

        def _download_file(self, remote_file_path: str, local_path: str) -> Any:
            self._check(remote_file_path)
            return super()._download_file(remote_file_path, local_path)  # type: ignore[no-untyped-call]

        def _check(self, path: str) -> None:
            if not self._is_below(path):
                raise MlflowException(
                    f"artifacts outside of {root} are not served: {os.path.join(self.artifact_dir, path)}"
                )

        def _is_below(self, path: str) -> bool:
            return Path(os.path.realpath(os.path.join(self.artifact_dir, path))).is_relative_to(root)

    for scheme in ("", "file"):
        registry._artifact_repository_registry.register(scheme, Confined)  # type: ignore[no-untyped-call]
