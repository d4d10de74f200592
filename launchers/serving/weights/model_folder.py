"""A folder with a model of a given shape for servers: random weights, configuration and tokenizer, with no download.

This module imports neither torch nor transformers: it makes the folder in a child process, so that the memory and the
threads that this takes are gone when the load begins.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from pydantic import Field, TypeAdapter

from llmexp.errors import BuildError
from llmexp.record.samples import Record
from llmexp.schema import ModelConfig
from llmexp.serving.config.load import ServedAdapters
from llmexp.serving.plan.server_plan import Weights

# A change of what is written needs another number: folders that exist are taken as they are.
LAYOUT = 2
WRITER = "llmexp.launchers.serving.weights.model_writer"
# These keys of a model do not change what is written.
_NOT_WRITTEN = {"name", "source"}


class FolderRequest(Record):
    """The model that a folder holds."""

    model: ModelConfig
    dtype: str
    seed: int
    weights: Weights = "safetensors"
    adapters: ServedAdapters | None = Field(None, description="the folder holds these, and not the model")

    @property
    def name(self) -> str:
        """A folder's name: the same for all that gives the same files."""
        written = self.model_dump(mode="json", exclude={"model": _NOT_WRITTEN})
        if self.adapters is None:
            del written["adapters"]
        digest = hashlib.sha256(json.dumps(written | {"layout": LAYOUT}, sort_keys=True).encode()).hexdigest()[:16]
        return f"{self.model.name}-{'adapters-' if self.adapters else ''}{digest}"

    def of_adapters(self, adapters: ServedAdapters) -> FolderRequest:
        """Return the request for a folder of the model's adapters, which are the same for all of its weights."""
        return self.model_copy(update={"adapters": adapters, "weights": "none"})


def models_cache() -> Path:
    """Return the place of the folders of all runs of this user."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "llmexp" / "models"


def ensure_model_folder(wanted: FolderRequest, cache: Path | None = None) -> Path:
    """Return the complete folder of a model, which is written where there is none.

    Raises BuildError with the writer's last line. A folder that exists is complete, as it gets its name at the end; of
    two processes that write the same one, the later finds that of the earlier.
    """
    folder = (cache or models_cache()) / wanted.name
    if folder.is_dir():
        return folder
    scratch = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        _write(wanted, scratch)
        _publish(scratch, folder)
    except OSError as error:
        raise BuildError(f"cannot write the folder of random weights {folder}: {error}") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return folder


def _write(wanted: FolderRequest, scratch: Path) -> None:
    scratch.mkdir(parents=True)
    command = [sys.executable, "-m", WRITER, str(scratch)]
    given = TypeAdapter(FolderRequest).dump_json(wanted)
    done = subprocess.run(command, input=given, capture_output=True, check=False)
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        why = lines[-1] if lines else f"the writer ended with exit code {done.returncode}"
        raise BuildError(f"cannot create the folder of random weights for model={wanted.model.name}: {why}")


def _publish(scratch: Path, folder: Path) -> None:
    try:
        scratch.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
