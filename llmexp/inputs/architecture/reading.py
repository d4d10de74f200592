"""From a configured model to its architecture, by the readers of the families."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from llmexp.inputs.architecture.families import dense, recurrent, sparse
from llmexp.inputs.architecture.fields import Fields, UncountedError
from llmexp.inputs.architecture.model import Architecture
from llmexp.inputs.hf_config import config_of
from llmexp.schema import HfModel, ModelConfig, SizedModel

READERS: Mapping[str, Callable[[Fields], Architecture]] = {
    "llama": dense.llama,
    "mistral": dense.mistral,
    "phi3": dense.mistral,
    "qwen2": dense.qwen2,
    "qwen3": dense.qwen3,
    "olmo2": dense.olmo,
    "olmo3": dense.olmo,
    "gemma3_text": dense.gemma3,
    "mixtral": sparse.mixtral,
    "qwen3_moe": sparse.qwen3_moe,
    "gpt_oss": sparse.gpt_oss,
    "deepseek_v3": sparse.deepseek_v3,
    "glm4_moe": sparse.glm4_moe,
    "llama4_text": sparse.llama4,
    "qwen3_next": recurrent.qwen3_next,
    "mamba2": recurrent.mamba2,
    "jamba": recurrent.jamba,
}
# Models with a text model inside, and what AutoModelForCausalLM builds besides it.
WITH_TEXT = {"gemma3": "its vision tower", "llama4": ""}


def read_architecture(config: Mapping[str, Any]) -> Architecture:
    """Return the architecture that a config.json describes; raises UncountedError where llmexp does not know it."""
    family = str(config.get("model_type"))
    if family in WITH_TEXT and isinstance(config.get("text_config"), dict):
        text = {"model_type": f"{family}_text"} | config["text_config"]
        return replace(read_architecture(text), besides=WITH_TEXT[family])
    if family not in READERS:
        raise UncountedError(
            f"config.json: model_type={family} is none of those whose layers llmexp knows: {', '.join(READERS)}"
        )
    return READERS[family](Fields(family, config))


def architecture_of(model: ModelConfig) -> Architecture:
    """Return the architecture of a transformers model in a folder here; raises UncountedError for any other.

    A model of which a part is not counted is refused too.
    """
    if model.target or isinstance(model, SizedModel):
        raise UncountedError(f"model={model.name} is built by code of its own")
    config = config_of(model)
    if config is None:
        place = model.path if isinstance(model, HfModel) else model.name
        raise UncountedError(f"model.path={place} is not here, and llmexp reads the config.json of a folder")
    if isinstance(model, HfModel) and model.trust_remote_code and config.get("auto_map"):
        raise UncountedError("config.json: auto_map names code of the model's own")
    made = read_architecture(config)
    if made.besides:
        raise UncountedError(f"config.json: model_type={config['model_type']} is built with {made.besides}")
    return made
