"""The model that a training saves, as far as its plan says: what other runs of the sweep may start from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from llmexp.inputs.byte_tokens import BYTES
from llmexp.inputs.checkpoint import has_tokenizer
from llmexp.inputs.hf_config import config_of
from llmexp.method import Method
from llmexp.schema import MadeModel, ModelConfig, SizedModel
from llmexp.schema.model import NAMES_IN_CONFIG
from llmexp.training.plan.artifacts import kept_tokenizer, kept_weights
from llmexp.training.plan.training_plan import TrainingPlan

FOLDER = "repeat.0/model"
# Of each family of models that are given by their sizes.
_CLASSES = {"llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM", "mixtral": "MixtralForCausalLM"}


def made_model(plan: TrainingPlan) -> MadeModel | None:
    """Return the whole model that the first repeat leaves; None where it keeps none."""
    config = plan.config
    if "model" not in kept_weights(config, plan.techniques):
        return None
    return MadeModel(
        run=plan.id,
        folder=FOLDER,
        config=None if _is_changed(plan) else model_config(config.model),
        parameters=plan.parameters,
        tokenizer=_has_tokenizer(plan),
    )


def model_config(model: ModelConfig) -> dict[str, Any] | None:
    """Return what the config.json of a saved model says of its shape; None for a hub's name."""
    if not isinstance(model, SizedModel):
        return config_of(model)
    sizes = model.model_dump(exclude={"name", "source", "target", "architecture", "rope_theta", "num_experts"})
    named = {NAMES_IN_CONFIG[size]: value for size, value in sizes.items()}
    experts = {"num_local_experts": count} if (count := getattr(model, "num_experts", None)) else {}
    return {
        "architectures": [_CLASSES[model.architecture]],
        "model_type": model.architecture,
        "rope_parameters": {"rope_type": "default", "rope_theta": model.rope_theta},
        **named,
        **experts,
    }


def _is_changed(plan: TrainingPlan) -> bool:
    """Tell whether an atom's hook makes a model of another shape, which only the ranks see."""
    atoms = Method.parse(plan.method, plan.config.task.name).atoms
    return any(atom.model_hook and not atom.share for atom in atoms)


def _has_tokenizer(plan: TrainingPlan) -> bool:
    made, kept = plan.config.starts_from, kept_tokenizer(plan.config)
    if made and made.made and kept == made.path:
        return made.made.tokenizer
    folder = Path(kept).expanduser()
    return bool(kept) and (kept == BYTES or not folder.is_dir() or has_tokenizer(folder))
