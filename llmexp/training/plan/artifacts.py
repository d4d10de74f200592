"""This module decides which weights a run keeps at its end.

By default that is the adapter where training started from a checkpoint, and nothing where the model was random.
"""

from __future__ import annotations

from typing import Literal

from llmexp.errors import ConfigError
from llmexp.inputs.byte_tokens import BYTE_VOCABULARY, BYTES
from llmexp.inputs.hf_config import config_of
from llmexp.method import Techniques
from llmexp.schema import ModelConfig, SizedModel
from llmexp.training.config import TrainingConfig, WrittenData
from llmexp.training.plan.dims import ParallelDims

Kept = Literal["adapter", "model"]


def kept_weights(config: TrainingConfig, techniques: Techniques) -> tuple[Kept, ...]:
    """Return the folders that the first repeat leaves: adapter in PEFT's format, model in transformers' format."""
    asked = config.adapter.save
    adapter = techniques.adapter is not None and (config.model.checkpoint is not None if asked is None else asked)
    kept: list[Kept] = ["adapter"] if adapter else []
    return (*kept, "model") if config.task.save_model else tuple(kept)


def kept_tokenizer(config: TrainingConfig) -> str:
    """Return whose tokenizer a saved model gets: a folder, a hub name, `bytes`, or '' for none.

    A checkpoint keeps its own. Random tokens have none: a vocabulary that has room gets that of bytes, so that the
    model can read text and be served.
    """
    if config.model.checkpoint:
        return config.model.checkpoint.path
    if isinstance(config.data, WrittenData):
        return config.data.tokenizer
    return BYTES if _vocab_size(config.model) >= BYTE_VOCABULARY else ""


def _vocab_size(model: ModelConfig) -> int:
    found = model.vocab_size if isinstance(model, SizedModel) else (config_of(model) or {}).get("vocab_size")
    return found if isinstance(found, int) else 0


def check_keeping(config: TrainingConfig, techniques: Techniques, dims: ParallelDims, *, engine_keeps: bool) -> None:
    """Raise ConfigError where weights are to be kept that cannot be saved as one model."""
    kept = kept_weights(config, techniques)
    if not kept:
        return
    asked = "task.save_model=true" if "model" in kept else "adapter.save=true"
    if not engine_keeps:
        raise ConfigError(f"{asked}: engine={config.engine.name} saves no weights; deepspeed and torch do")
    if dims.pp > 1:
        raise ConfigError(
            f"{asked}: parallelism.pp={dims.pp} cuts the model into stages, which cannot be saved: set parallelism.pp=1"
        )
    if "model" in kept and techniques.adapter == "prompt":
        raise ConfigError(
            "task.save_model=true: P trains embeddings before the text, which no merged model holds: leave it out, "
            "to save its adapter"
        )
