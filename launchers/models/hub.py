"""Where the checkpoint of model.path lies on this node: its folder, or the Hugging Face cache's copy of a hub name.

As a program, which the driver starts once a node before any rank: fetch what the name needs, and say in the last line why where that fails.
"""

from __future__ import annotations

import sys
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, RepositoryNotFoundError

from llmexp.errors import ConfigError
from llmexp.plan.checkpoint import Checkpoint

WEIGHTS_AND_TOKENIZER = ["*.safetensors", "*.json", "*.model", "*.txt", "*.jinja"]
CODE = ["*.py"]
# Other layouts of the same weights.
NOT_OF_TRANSFORMERS = ["*/*", "consolidated*"]


def folder_of(path: str, *, code: bool = False, fetch: bool = False) -> Path:
    """The folder that a path or a hub name means here, fetched where it is asked for; `code` takes Python files too. Raises ConfigError."""
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
            f"model.path={path} is neither a folder here nor a model of the Hugging Face hub that this user may read"
        ) from None
    except HFValidationError as error:
        raise ConfigError(
            f"model.path={path} is neither a folder here nor a name of the Hugging Face hub: {_line(error)}"
        ) from None
    except LocalEntryNotFoundError as error:
        nowhere = f"model.path={path} is neither a folder here nor in the Hugging Face cache"
        raise ConfigError(f"{nowhere}, and the hub cannot be reached: {_line(error.__cause__ or error)}") from None
    except (HfHubHTTPError, OSError) as error:
        raise ConfigError(f"model.path={path} cannot be fetched from the Hugging Face hub: {_line(error)}") from None


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())


def main(path: str, *options: str) -> int:
    """Fetch and check; the exit code."""
    try:
        Checkpoint.read(folder_of(path, code="code" in options, fetch=True))
    except ConfigError as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
