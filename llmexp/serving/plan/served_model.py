"""The model that a server holds: given by its sizes, or a folder with a checkpoint and a tokenizer of its own."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any, Protocol

from llmexp.errors import ConfigError
from llmexp.inputs import files
from llmexp.inputs.architecture.fields import UncountedError
from llmexp.inputs.architecture.model import Architecture
from llmexp.inputs.architecture.reading import read_architecture
from llmexp.inputs.checkpoint import Checkpoint, has_tokenizer
from llmexp.inputs.shape import shape_of
from llmexp.record.reading import read_json
from llmexp.schema import FamilyModel, HfModel, MadeModel, ModelConfig, SizedModel
from llmexp.schema.model import RUN

WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
# The names of config.json for a size; the second ones are GPT-2's.
_NAMES = {
    "vocab_size": ("vocab_size",),
    "hidden_size": ("hidden_size", "n_embd"),
    "num_layers": ("num_hidden_layers", "n_layer"),
    "num_heads": ("num_attention_heads", "n_head"),
    "max_positions": ("max_position_embeddings", "n_positions"),
}


class ServedModel(Protocol):
    """The sizes that a server's plan needs, as models that are given by their sizes have them."""

    @property
    def name(self) -> str:
        """The name in tables."""

    @property
    def architecture(self) -> str:
        """The family, such as llama."""

    @property
    def vocab_size(self) -> int:
        """The rows of the embedding."""

    @property
    def num_layers(self) -> int:
        """The layers, each with keys and values."""

    @property
    def num_kv_heads(self) -> int:
        """The heads of keys and values."""

    @property
    def head_dim(self) -> int:
        """The numbers of a head."""

    @property
    def max_positions(self) -> int:
        """The most tokens of a request."""


@dataclass(frozen=True)
class CheckpointModel:
    """A checkpoint in a folder here, by the sizes of its config.json."""

    name: str
    architecture: str
    vocab_size: int
    num_layers: int
    num_kv_heads: int
    head_dim: int
    max_positions: int
    parameters: int
    folder: Path
    digest: str
    """Of the weights, and of all other files; before another run has made them, the id of that run."""
    architecture_read: Architecture | None = None
    """Its layers by kind; None where llmexp does not know them, so that their cache is taken to be grouped heads."""


def served_model(model: ModelConfig) -> ServedModel:
    """Return the model of a run of task=serve; raises ConfigError for one that cannot be served."""
    if isinstance(model, SizedModel):
        return model
    if isinstance(model, FamilyModel) or model.checkpoint is None or model.target:
        folder_name = "<folder>" if isinstance(model, FamilyModel) else model.path
        raise ConfigError(
            f"model={model.name}: task=serve takes a folder's own weights (model={folder_name}), or models that are "
            "given by their sizes, such as model=7b"
        )
    folder = Path(model.path).expanduser()
    if model.made:
        return _of_run(model, model.made, folder)
    if not folder.is_dir():
        raise ConfigError(
            f"model.path={model.path}: task=serve needs a local folder, and this is not one: download the model first "
            f"(hf download {model.path} --local-dir <folder>), and serve model=<folder>"
        )
    return _of_folder(model, folder)


def weight_parameters(model: ServedModel) -> int:
    """Return the number of a model's parameters."""
    if isinstance(model, CheckpointModel):
        return model.parameters
    shape = shape_of(model)  # type: ignore[arg-type]
    assert shape
    return shape.parameters


def _of_run(model: HfModel, made: MadeModel, folder: Path) -> CheckpointModel:
    """Return the checkpoint that a run of the sweep makes, as its plan says."""
    lacks = {
        "config.json": made.config is not None,
        "number of parameters": made.parameters is not None,
        "tokenizer": made.tokenizer,
    }
    if lacking := [what for what, known in lacks.items() if not known]:
        raise ConfigError(
            f"model={RUN}{model.name}: the plan of the run that makes it says nothing of its {lacking[0]}, which a "
            "server needs: run that first, and serve model=<its folder>"
        )
    assert made.config is not None
    assert made.parameters is not None
    return _of_config(model, made.config, folder, made.parameters, made.run)


def _of_folder(model: HfModel, folder: Path) -> CheckpointModel:
    checkpoint = Checkpoint.read(folder)
    if not has_tokenizer(folder):
        raise ConfigError(
            f"model.path={model.path}: it has no tokenizer, which every server needs: save one there "
            "(tokenizer.save_pretrained)"
        )
    try:
        config = read_json(folder / "config.json")
    except (OSError, ValueError) as error:
        raise ConfigError(f"model.path={model.path}: config.json cannot be read: {error}") from None
    parameters = sum(prod(stored.shape) for stored in checkpoint.tensors.values())
    return _of_config(model, config, folder, parameters, _digest(checkpoint))


def as_found(model: CheckpointModel) -> CheckpointModel:
    """Return the checkpoint with the digest of its files, which are not there yet when another run makes them."""
    return replace(model, digest=_digest(Checkpoint.read(model.folder)))


def _digest(checkpoint: Checkpoint) -> str:
    return f"{checkpoint.digest}-{files.digest(beside_weights(checkpoint.folder))}"


def _of_config(model: HfModel, config: dict[str, Any], folder: Path, parameters: int, digest: str) -> CheckpointModel:
    sizes = {size: _size(config, names, model.path) for size, names in _NAMES.items()}
    return CheckpointModel(
        name=model.name,
        architecture=str(config.get("model_type")),
        vocab_size=sizes["vocab_size"],
        num_layers=sizes["num_layers"],
        num_kv_heads=config.get("num_key_value_heads") or sizes["num_heads"],
        head_dim=config.get("head_dim") or sizes["hidden_size"] // sizes["num_heads"],
        max_positions=sizes["max_positions"],
        parameters=parameters,
        folder=folder.absolute(),
        digest=digest,
        architecture_read=_architecture(config),
    )


def _architecture(config: dict[str, Any]) -> Architecture | None:
    with suppress(UncountedError):
        return read_architecture(config)
    return None


def beside_weights(folder: Path) -> list[Path]:
    """Return the files of a checkpoint's folder that are no weights: its configuration and its tokenizer."""
    return sorted(path for path in folder.iterdir() if path.is_file() and path.suffix not in WEIGHTS)


def _size(config: dict[str, Any], names: tuple[str, ...], place: str) -> int:
    found: int | None = next((config[name] for name in names if isinstance(config.get(name), int)), None)
    if found is None:
        raise ConfigError(
            f"model.path={place}: its config.json has no {names[0]}, so llmexp cannot serve it as a text model"
        )
    return found
