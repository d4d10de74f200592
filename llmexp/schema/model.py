"""What is trained: the model, and what an adapter adds to it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from llmexp.schema.section import DottedPath, FolderPart, PositiveFloat, PositiveInt, Section, Tuple, whole


class ModelConfig(Section):
    """A decoder-only transformer's shape; for `architecture: hf` the shape comes from `path` instead."""

    name: FolderPart
    target: DottedPath | None = Field(
        None, description="a class of transformers' kind, or a function, that builds the model instead of AutoModelForCausalLM"
    )
    architecture: Literal["llama", "qwen3", "mixtral", "hf"]
    path: str | None = Field(None, description="folder or hub name of a transformers model; only with architecture hf")
    weights: Literal["random", "pretrained"] = Field(
        "random",
        description="where training starts: values drawn from the seed, which suffice for throughput, or the safetensors of `path`",
    )
    trust_remote_code: bool = False
    vocab_size: PositiveInt | None = None
    hidden_size: PositiveInt | None = None
    intermediate_size: PositiveInt | None = None
    num_layers: PositiveInt | None = None
    num_heads: PositiveInt | None = None
    num_kv_heads: PositiveInt | None = None
    head_dim: PositiveInt | None = Field(None, description="None: hidden_size / num_heads")
    max_positions: PositiveInt | None = None
    num_experts: PositiveInt | None = Field(None, description="MLPs of each layer, with a router before them; only with architecture mixtral")
    experts_per_token: PositiveInt | None = Field(None, description="of them, those that a token goes through")
    rope_theta: PositiveFloat = 10000.0
    rms_norm_eps: PositiveFloat = 1e-5
    tie_embeddings: bool = False
    source: str = ""

    @model_validator(mode="before")
    @classmethod
    def _heads_share_the_width(cls, given: Any) -> Any:
        """Fill in the head_dim of most models: hidden_size shared out evenly over the heads."""
        if not isinstance(given, dict) or given.get("architecture") == "hf" or given.get("head_dim") is not None:
            return given
        width, heads = whole(given.get("hidden_size")), whole(given.get("num_heads"))
        even = isinstance(width, int) and isinstance(heads, int) and heads > 0 and width % heads == 0
        return given | {"head_dim": width // heads} if even else given

    @model_validator(mode="after")
    def _shape_or_path(self) -> ModelConfig:
        if self.architecture == "hf":
            if not self.path:
                raise ValueError("model=hf needs model.path=<folder or hub name of a transformers model>")
            return self
        if self.weights == "pretrained":
            raise ValueError(f"model.weights=pretrained needs a checkpoint: set model=<folder or hub name>, instead of model={self.name}")
        sizes = ("vocab_size", "hidden_size", "intermediate_size", "num_layers", "num_heads", "num_kv_heads", "head_dim", "max_positions")
        missing = [key for key in sizes if getattr(self, key) is None]
        if missing == ["head_dim"]:
            raise ValueError(f"model.hidden_size={self.hidden_size} is not a multiple of model.num_heads={self.num_heads}: set model.head_dim=<size>")
        if missing:
            raise ValueError(f"model.{missing[0]} is missing for architecture {self.architecture}")
        self._check_experts()
        if self.num_heads and self.num_kv_heads and self.num_heads % self.num_kv_heads:
            raise ValueError(f"model.num_heads={self.num_heads} is not a multiple of model.num_kv_heads={self.num_kv_heads}")
        return self

    def _check_experts(self) -> None:
        counts = {"num_experts": self.num_experts, "experts_per_token": self.experts_per_token}
        sparse = self.architecture == "mixtral"
        wrong = next((name for name, count in counts.items() if (count is None) is sparse), None)
        if wrong and sparse:
            raise ValueError(f"model.{wrong} is missing for architecture mixtral")
        if wrong:
            raise ValueError(f"model.{wrong}={counts[wrong]} is of architecture mixtral, and model={self.name} is {self.architecture}: leave it out")
        if self.num_experts and self.experts_per_token and self.experts_per_token > self.num_experts:
            raise ValueError(f"model.experts_per_token={self.experts_per_token} is more than model.num_experts={self.num_experts}")


class AdapterConfig(Section):
    """What the atoms L, QL and P add to a model whose own parameters are frozen; PEFT's names, in its own words."""

    rank: PositiveInt = Field(64, description="L, QL: rows of A and columns of B")
    alpha: PositiveFloat = Field(16.0, description="L, QL: what B A is multiplied with, times rank")
    dropout: Annotated[float, Field(ge=0, lt=1)] = Field(0.0, description="L, QL: share of the inputs of A that are left out at random")
    targets: Annotated[tuple[str, ...], Tuple] = Field(
        ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
        description="L, QL: the matrices of a layer that get an A and a B",
    )
    save: bool | None = Field(
        None, description="leave the adapter in repeat.0/adapter when everything is measured, for PEFT; None: where weights are pretrained"
    )
    virtual_tokens: PositiveInt = Field(20, description="P: trained embeddings before every sequence")
