"""Finds the checkpoint of model.path on this node: a folder, or the Hugging Face cache's copy of a hub name.

The driver starts this file as a program once a node, before any rank. The program fetches what the name needs; if that
fails, its last line says why.
"""

from __future__ import annotations

import sys
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, RepositoryNotFoundError

from llmexp.errors import ConfigError
from llmexp.inputs.checkpoint import Checkpoint

WEIGHTS_AND_TOKENIZER = ["*.safetensors", "*.json", "*.model", "*.txt", "*.jinja"]
CODE = ["*.py"]
# These files hold the same weights in other layouts.
NOT_OF_TRANSFORMERS = ["*/*", "consolidated*"]


def folder_of(path: str, *, code: bool = False, fetch: bool = False) -> Path:
    """Return the folder of a path or hub name, and fetch it where `fetch` is set.

    `code` includes Python files. Raises ConfigError where the checkpoint is missing or cannot be fetched.
    """
    local = Path(path).expanduser()
    if local.is_dir():
        return local
    wanted = WEIGHTS_AND_TOKENIZER + (CODE if code else [])
    try:
        return Path(
            snapshot_download(
                path, allow_patterns=wanted, ignore_patterns=NOT_OF_TRANSFORMERS, local_files_only=not fetch
            )
        )
    except RepositoryNotFoundError:
        raise ConfigError(
            f"model.path={path} is neither a local folder nor a Hugging Face hub model that this user can read"
        ) from None
    except HFValidationError as error:
        raise ConfigError(
            f"model.path={path} is neither a local folder nor a Hugging Face hub name: {_line(error)}"
        ) from None
    except LocalEntryNotFoundError as error:
        nowhere = f"model.path={path} is neither a local folder nor in the Hugging Face cache"
        raise ConfigError(f"{nowhere}, and the hub cannot be reached: {_line(error.__cause__ or error)}") from None
    except (HfHubHTTPError, OSError) as error:
        raise ConfigError(f"model.path={path} cannot be fetched from the Hugging Face hub: {_line(error)}") from None


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())


def main(path: str, *options: str) -> int:
    """Fetch and check a checkpoint; return the exit code."""
    try:
        Checkpoint.read(folder_of(path, code="code" in options, fetch=True))
    except ConfigError as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
