"""A folder, a file or a hub name in the place of an option: model=./mine, data=./mine.jsonl."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from hydra.core.config_loader import ConfigLoader
from omegaconf import DictConfig, OmegaConf, open_dict

from llmexp.cli.hydra_private import chosen_by
from llmexp.errors import ConfigError
from llmexp.inputs.checkpoint import has_tokenizer
from llmexp.inputs.instructions import SUFFIXES
from llmexp.schema.model import RUN

CONFIG_FILE = "config.json"
# This is the tokenizer beside a model's weights.
MODELS_OWN = "${model.path}"
IDLE = f"data.tokenizer={MODELS_OWN}"
# What a model's tokenizer means for a task that has no section of data: a server reads it with the model.
WITHOUT_DATA = {"serve": [], "compress": [f"text.tokenizer={MODELS_OWN}"]}
# Hydra's grammar allows these characters of a path without quotes.
UNQUOTED = re.compile(r"[\w./+-]+", re.ASCII)


def spelled_out(loader: ConfigLoader, words: Sequence[str]) -> list[str]:
    """Replace every place among the words by the options that it stands for; raises ConfigError.

    Options that are typed as well take precedence.
    """
    typed = {word.lstrip("+").partition("=")[0] for word in words}
    tokenizer = WITHOUT_DATA.get(_task(loader, words), [IDLE])
    found: list[str] = []
    for word in words:
        meant = _meant(loader, word)
        implied = [each for one in meant[1:] for each in (tokenizer if one == IDLE else [one])]
        found += meant[:1] + [each for each in implied if each.partition("=")[0] not in typed]
    return found


def without_idle_tokenizer(config: DictConfig) -> DictConfig:
    """Remove the tokenizer that came with a model's place, where the data has no text for it."""
    data = config.get("data")
    if data and data.get("name") == "synthetic" and OmegaConf.to_container(data).get("tokenizer") == MODELS_OWN:  # type: ignore[union-attr]
        with open_dict(data):
            del data["tokenizer"]
    return config


def place_of(group: str, name: str) -> ConfigError | None:
    """Build the error for a name that is no option but exists here as a file or folder; None where it does not."""
    if group == "model" and (Path(name) / CONFIG_FILE).is_file():
        return ConfigError(f"unknown model '{name}': did you mean the folder here? write model=./{name}")
    if group == "data" and Path(name).exists():
        return ConfigError(f"unknown data '{name}': did you mean the path here? write {_reading(name)}")
    return None


def _reading(place: str) -> str:
    """Say which options read a file or folder whose name is not that of instructions."""
    return f"data=text data.files=[{place}], or data=instructions data.files=[{place}] where it holds records"


def _meant(loader: ConfigLoader, word: str) -> list[str]:
    group, _, value = word.lstrip("+").partition("=")
    if group not in ("model", "data"):
        return [word]
    values = value.split(",")
    places = [each for each in values if _is_place(loader, group, each)]
    if not places:
        return [word]
    if len(places) < len(values):
        raise ConfigError(
            f"{word}: {places[0]} is a path, not an option, and the two cannot be swept together: run one after the "
            f"other"
        )
    paths = [_quoted(_folder(str(Path(place).expanduser()) if place.startswith("~") else place)) for place in places]
    if group == "model":
        tokenizer = [IDLE] if all(map(_may_have_tokenizer, places)) else []
        return ["model=hf", f"model.path={','.join(paths)}", "model.weights=pretrained", *tokenizer]
    if odd := next((place for place in places if not place.endswith(SUFFIXES)), None):
        raise ConfigError(f"data={odd}: instructions are in {', '.join(SUFFIXES)} files: write {_reading(odd)}")
    return ["data=instructions", f"data.files={','.join(f'[{path}]' for path in paths)}"]


def _task(loader: ConfigLoader, words: Sequence[str]) -> str:
    """Return the task among the words, or that of their experiment; empty where neither names one."""
    chosen = [word.partition("=")[2] for word in words if word.startswith("task=")]
    if chosen:
        return chosen[-1]
    names = [word.partition("=")[2] for word in words if word.lstrip("+").startswith("experiment=")]
    tasks = (chosen_by(loader, f"experiment/{name}", "task") for name in names)
    return next((task for task in tasks if task in WITHOUT_DATA), "")


def _is_place(loader: ConfigLoader, group: str, value: str) -> bool:
    """Tell whether a value is a place and no option's name; options of other packages may contain folders."""
    inner, slash, name = value.rpartition("/")
    if value.startswith((".", "/", "~")) or (group == "model" and value.startswith(RUN)):
        return True
    if slash:
        return name not in loader.get_group_options(f"{group}/{inner}")
    return group == "data" and value.endswith(SUFFIXES)


def _folder(place: str) -> str:
    """Return the place, or its folder where the place is a config.json."""
    return str(Path(place).parent) if Path(place).name == CONFIG_FILE and Path(place).is_file() else place


def _may_have_tokenizer(place: str) -> bool:
    """Tell whether a folder has a tokenizer; True for a hub name, of which nothing is known here."""
    folder = Path(_folder(place)).expanduser()
    return not folder.is_dir() or has_tokenizer(folder)


def _quoted(path: str) -> str:
    if UNQUOTED.fullmatch(path):
        return path
    escaped = path.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
