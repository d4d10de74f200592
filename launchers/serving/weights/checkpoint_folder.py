"""The folder by which a checkpoint of one's own is served: links to its files, without what ends or varies outputs.

Every engine reads the same folder, so that end tokens, penalties and sampling of its generation_config.json change no
output: servers without ignore_eos have no end token either. Nothing is written into the checkpoint's own folder.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from llmexp.errors import BuildError
from llmexp.launchers.serving.weights.model_folder import models_cache
from llmexp.serving.plan.served_model import CheckpointModel

CONFIG, GENERATION = "config.json", "generation_config.json"
# A change of what is written needs another number.
LAYOUT = 1
_ENDS = ("eos_token_id", "forced_eos_token_id")


def ensure_checkpoint_folder(model: CheckpointModel, cache: Path | None = None) -> Path:
    """Return the folder, which is made where there is none; raises BuildError where it cannot be."""
    folder = (cache or models_cache()) / f"{model.name}-served-{model.digest}-{LAYOUT}"
    scratch = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        shutil.rmtree(scratch, ignore_errors=True)
        _write(model.folder, scratch)
        if _is_current(folder, scratch):
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        scratch.rename(folder)
    except OSError as error:
        raise BuildError(f"cannot create the folder {folder}, which serves {model.folder}: {error}") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return folder


def _is_current(folder: Path, scratch: Path) -> bool:
    """Tell whether a folder links to the same files: a checkpoint may have been moved since."""
    return folder.is_dir() and _links(folder) == _links(scratch)


def _links(folder: Path) -> dict[str, str]:
    return {path.name: os.readlink(path) for path in folder.iterdir() if path.is_symlink()}


def _write(source: Path, scratch: Path) -> None:
    scratch.mkdir(parents=True)
    for path in source.iterdir():
        if path.name not in (CONFIG, GENERATION):
            (scratch / path.name).symlink_to(path.resolve())
    config: dict[str, Any] = json.loads((source / CONFIG).read_text())
    (scratch / CONFIG).write_text(json.dumps(_without_ends(config), indent=2) + "\n")
    (scratch / GENERATION).write_text(json.dumps({"do_sample": False}, indent=2) + "\n")


def _without_ends(config: dict[str, Any]) -> dict[str, Any]:
    return config | dict.fromkeys(_ENDS)
