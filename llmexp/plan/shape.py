"""A model's shape in numbers: parameters by part and FLOPs a token, by arithmetic alone."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmexp.errors import ConfigError
from llmexp.schema import ModelConfig

# Architectures of transformers whose parameters `ModelShape` counts exactly.
COUNTABLE = {"LlamaForCausalLM": "llama", "MistralForCausalLM": "llama", "Qwen3ForCausalLM": "qwen3"}


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a Llama-like decoder: grouped-query attention, gated MLP, RMSNorm, no biases."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    tie_embeddings: bool
    qk_norm: bool = False

    @property
    def linear_parameters(self) -> int:
        """Weights of the decoder layers' matrices: query, key, value, output, gate, up, down."""
        queries = self.num_heads * self.head_dim
        keys_and_values = 2 * self.num_kv_heads * self.head_dim
        attention = self.hidden_size * (queries + keys_and_values) + queries * self.hidden_size
        return self.num_layers * (attention + 3 * self.hidden_size * self.intermediate_size)

    @property
    def norm_parameters(self) -> int:
        """Gains of all RMSNorms, and of the query and key norms where the architecture has them."""
        per_layer = 2 * self.hidden_size + (2 * self.head_dim if self.qk_norm else 0)
        return self.num_layers * per_layer + self.hidden_size

    @property
    def embedding_parameters(self) -> int:
        """The input embedding, which is looked up, not multiplied."""
        return self.vocab_size * self.hidden_size

    @property
    def head_parameters(self) -> int:
        """The output projection's own weights: none where it shares the embedding's."""
        return 0 if self.tie_embeddings else self.vocab_size * self.hidden_size

    @property
    def parameters(self) -> int:
        """All parameters."""
        return self.linear_parameters + self.norm_parameters + self.embedding_parameters + self.head_parameters

    def parameters_of_rank(self, tp: int, pp: int, v_shaped: bool = False) -> int:
        """Of the rank that holds most: matrices and embeddings cut by tp, norms whole; layers shared out, first and last stage with their ends.

        With tied embeddings the last of several stages holds a copy of them. `v_shaped`: first and last stage are on one rank.
        """
        norms = self.norm_parameters - self.hidden_size
        layers = (self.linear_parameters // tp + norms) // pp
        first, last = self.embedding_parameters // tp, self.hidden_size + self.head_parameters // tp
        if pp == 1:
            return layers + first + last
        last += first if self.tie_embeddings else 0
        return layers + (first + last if v_shaped else max(first, last))

    def flops_per_token(self, seq_len: int, linear_trained: bool = True) -> float:
        """Model FLOPs of a token's forward and backward pass, recomputation left out.

        6 per trained and 4 per frozen parameter that takes part in a matrix product (the output projection does, the embedding's lookup and
        the norms do not), plus causal attention: 2 products forward and 4 backward over half of the seq_len x seq_len matrix.
        Convention of PaLM (arXiv 2204.02311, appendix B) with the causal half of FlashAttention (arXiv 2205.14135).
        """
        matrices = (6 if linear_trained else 4) * self.linear_parameters + 6 * self.vocab_size * self.hidden_size
        attention = 6 * self.num_layers * self.num_heads * self.head_dim * seq_len
        return float(matrices + attention)

    def recomputed_flops_per_token(self, seq_len: int) -> float:
        """FLOPs that running every layer's forward pass again in backward adds to a token."""
        return float(2 * self.linear_parameters + 2 * self.num_layers * self.num_heads * self.head_dim * seq_len)


def shape_of(model: ModelConfig) -> ModelShape | None:
    """The shape of a configured model; None for a class of its own, or a transformers model, whose parameters only building it can count."""
    if model.target:
        return None
    if model.architecture == "hf":
        return _shape_of_folder(model)
    sizes = model.model_dump(include={f for f in ModelShape.__dataclass_fields__ if f != "qk_norm"})
    return ModelShape(**sizes, qk_norm=model.architecture == "qwen3")


def _shape_of_folder(model: ModelConfig) -> ModelShape | None:
    path = Path(model.path or "").expanduser()
    if not path.exists():
        if path.is_absolute() or str(model.path).startswith((".", "~")):
            raise ConfigError(f"model.path={model.path}: there is no such folder")
        return None
    config = path / "config.json" if path.is_dir() else path
    try:
        loaded: dict[str, Any] = json.loads(config.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"model.path={model.path}: {config.name} cannot be read as a transformers configuration ({error})") from None
    architecture = (loaded.get("architectures") or [""])[0]
    if architecture not in COUNTABLE or loaded.get("attention_bias") or loaded.get("mlp_bias"):
        return None
    heads = loaded["num_attention_heads"]
    return ModelShape(
        vocab_size=loaded["vocab_size"],
        hidden_size=loaded["hidden_size"],
        intermediate_size=loaded["intermediate_size"],
        num_layers=loaded["num_hidden_layers"],
        num_heads=heads,
        num_kv_heads=loaded.get("num_key_value_heads") or heads,
        head_dim=loaded.get("head_dim") or loaded["hidden_size"] // heads,
        tie_embeddings=bool(loaded.get("tie_word_embeddings")),
        qk_norm=COUNTABLE[architecture] == "qwen3",
    )
