"""The config.json of a transformers model: of a folder here, or as the configuration gives it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from llmexp.errors import ConfigError
from llmexp.record.reading import read_json
from llmexp.schema import FamilyModel, HfModel


def config_of(model: HfModel | FamilyModel) -> dict[str, Any] | None:
    """Return what config.json says; None for a hub's name. Raise ConfigError where there is no such file.

    Of a model that another run makes, it is what that run's plan says, whether the folder is there yet or not.
    """
    if isinstance(model, FamilyModel):
        return model.config | {"model_type": model.architecture}
    if model.made:
        return model.made.config
    path = Path(model.path).expanduser()
    if not path.exists():
        if path.is_absolute() or model.path.startswith((".", "~")):
            raise ConfigError(f"model.path={model.path}: no such folder")
        if len(path.parts) > 2:
            raise ConfigError(
                f"model.path={model.path}: no such folder here, and a hub name has the form organization/model"
            )
        return None
    if not path.is_dir():
        raise ConfigError(f"model.path={model.path} is a file: name the folder that holds it, model.path={path.parent}")
    config = path / "config.json"
    try:
        loaded: dict[str, Any] = read_json(config)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"model.path={model.path}: {config.name} cannot be read as a transformers configuration ({error})"
        ) from None
    return loaded
