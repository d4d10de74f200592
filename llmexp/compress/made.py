"""The compressed model that a run leaves, as far as its plan says: what other runs of the sweep may start from."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from llmexp.compress.config import Prune
from llmexp.compress.plan import CompressPlan
from llmexp.inputs.architecture.fields import UncountedError
from llmexp.inputs.architecture.reading import read_architecture
from llmexp.inputs.checkpoint import has_tokenizer
from llmexp.inputs.hf_config import config_of
from llmexp.schema import HfModel, MadeModel

FOLDER = "repeat.0/model"


def made_model(plan: CompressPlan) -> MadeModel:
    """Return the model in the folder that the run writes; it has the original's tokenizer."""
    model, recipe = plan.config.model, plan.config.compress
    config = config_of(model)
    if config and isinstance(recipe, Prune):
        config = pruned(config, recipe)
    return MadeModel(
        run=plan.id, folder=FOLDER, config=config, parameters=_parameters(config), tokenizer=_has_tokenizer(model)
    )


def pruned(config: dict[str, Any], recipe: Prune) -> dict[str, Any] | None:
    """Return the config.json of a model without the parts that the recipe takes out.

    None where layers differ in kind, because only the run sees which of them go.
    """
    if recipe.method == "mlp":
        return config | {"intermediate_size": _left(config["intermediate_size"], recipe.share)}
    if recipe.method == "layers":
        left, kinds = _left(config["num_hidden_layers"], recipe.share), config.get("layer_types")
        if kinds and len(set(kinds)) > 1:
            return None
        return config | {"num_hidden_layers": left} | ({"layer_types": kinds[:left]} if kinds else {})
    heads = config["num_attention_heads"]
    groups = config.get("num_key_value_heads") or heads
    left = _left(groups, recipe.share)
    return config | {
        "num_attention_heads": heads // groups * left,
        "num_key_value_heads": left,
        "head_dim": config.get("head_dim") or config["hidden_size"] // heads,
    }


def _left(count: int, share: float) -> int:
    return count - round(count * share)


def _parameters(config: dict[str, Any] | None) -> int | None:
    with suppress(UncountedError):
        return read_architecture(config).parameters if config else None
    return None


def _has_tokenizer(model: HfModel) -> bool:
    if model.made:
        return model.made.tokenizer
    folder = Path(model.path).expanduser()
    return not folder.is_dir() or has_tokenizer(folder)
