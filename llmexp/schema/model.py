"""The sections that say what is trained: the model, whose type follows from model.architecture, and its adapter."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field, model_validator

from llmexp.schema.section import DottedPath, FolderPart, PositiveFloat, PositiveInt, Section, Tuple, whole
from llmexp.schema.tagged import Tagged

# In model=@NAME, before the name of the run of the same sweep that makes the model.
RUN = "@"


class _Model(Tagged):
    """The keys that all models share."""

    choose = "take such a model"

    name: FolderPart
    target: DottedPath | None = Field(
        None,
        description=(
            "a transformers-style class, or a function, that builds the model instead of AutoModelForCausalLM"
        ),
    )
    source: str = ""


class SizedModel(_Model):
    """A decoder-only transformer that is given by its sizes; its weights are random."""

    said = "model={name} is {architecture}"
    instead = dict.fromkeys(("weights", "path"), "set model=<folder or hub name> for a checkpoint")
    checkpoint: ClassVar[None] = None

    architecture: str
    vocab_size: PositiveInt
    hidden_size: PositiveInt
    intermediate_size: PositiveInt
    num_layers: PositiveInt
    num_heads: PositiveInt
    num_kv_heads: PositiveInt
    head_dim: PositiveInt = Field(description="default hidden_size / num_heads")
    max_positions: PositiveInt
    rope_theta: PositiveFloat = 10000.0
    rms_norm_eps: PositiveFloat = 1e-5
    tie_embeddings: bool = False

    @model_validator(mode="before")
    @classmethod
    def _heads_share_the_width(cls, given: Any) -> Any:
        """Fill in the head_dim that most models have: hidden_size / num_heads."""
        if not isinstance(given, dict) or given.get("head_dim") is not None:
            return given
        width, heads = whole(given.get("hidden_size")), whole(given.get("num_heads"))
        if not (isinstance(width, int) and isinstance(heads, int) and heads > 0):
            return given
        if width % heads:
            raise ValueError(
                f"model.hidden_size={width} is not a multiple of model.num_heads={heads}: set model.head_dim=<size>"
            )
        return given | {"head_dim": width // heads}

    @model_validator(mode="after")
    def _heads_share_keys(self) -> SizedModel:
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"model.num_heads={self.num_heads} is not a multiple of model.num_kv_heads={self.num_kv_heads}"
            )
        return self


class DenseModel(SizedModel):
    """A model with one MLP in each layer."""

    kinds = ("architecture llama", "architecture qwen3")
    instead = SizedModel.instead | dict.fromkeys(("num_experts", "experts_per_token"), "take model=mixtral")
    architecture: Literal["llama", "qwen3"]


class MixtralModel(SizedModel):
    """A model with several MLPs in each layer and a router before them."""

    kinds = ("architecture mixtral",)

    architecture: Literal["mixtral"]
    num_experts: PositiveInt = Field(description="number of MLPs in each layer")
    experts_per_token: PositiveInt = Field(description="how many of them each token goes through")

    @model_validator(mode="after")
    def _no_more_experts_than_there_are(self) -> MixtralModel:
        if self.experts_per_token > self.num_experts:
            raise ValueError(
                f"model.experts_per_token={self.experts_per_token} is more than model.num_experts={self.num_experts}"
            )
        return self


class MadeModel(Section):
    """The model that a run of the same sweep will leave, as far as the plan of that run says; model=@NAME names it."""

    run: str = Field(description="id of the run that makes it")
    folder: str = Field(description="where it lies below the folder of that run")
    config: dict[str, Any] | None = Field(None, description="what its config.json will say; None if that is not known")
    parameters: PositiveInt | None = None
    tokenizer: bool = Field(False, description="a tokenizer will lie beside the weights")


class HfModel(_Model):
    """A model of transformers, whose sizes are read from its config.json."""

    kinds = ("model=hf",)
    said = "model={name} has its shape from model.path"

    architecture: Literal["hf"]
    path: str = Field(description="folder or hub name of a transformers model")
    weights: Literal["random", "pretrained"] = Field(
        "random",
        description=(
            "initial weights: random values drawn from the seed, enough to measure throughput, or the safetensors of "
            "`path`"
        ),
    )
    trust_remote_code: bool = False
    made: MadeModel | None = Field(
        None,
        description="filled in for model=@NAME by the plan of the run with sweep.run_name=NAME",
        json_schema_extra={"filled_in": True},
    )

    @property
    def checkpoint(self) -> HfModel | None:
        """The model whose weights training starts from; None for random ones."""
        return self if self.weights == "pretrained" else None


FamilyName = Literal[
    "mistral",
    "phi3",
    "qwen2",
    "olmo2",
    "olmo3",
    "gemma3_text",
    "qwen3_moe",
    "gpt_oss",
    "deepseek_v3",
    "glm4_moe",
    "llama4_text",
    "qwen3_next",
    "mamba2",
    "jamba",
]


# The sizes of `SizedModel`, as a config.json names them.
NAMES_IN_CONFIG = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "intermediate_size": "intermediate_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "max_positions": "max_position_embeddings",
    "rms_norm_eps": "rms_norm_eps",
    "tie_embeddings": "tie_word_embeddings",
    "experts_per_token": "num_experts_per_tok",
}


class FamilyModel(_Model):
    """A model of a family of transformers, given by the fields of its config.json; its weights are random."""

    kinds = tuple(f"architecture {family}" for family in get_args(FamilyName))
    said = "model={name} is {architecture}"
    instead = SizedModel.instead | {
        size: f"set model.config.{field}={{value}}" for size, field in NAMES_IN_CONFIG.items()
    }
    checkpoint: ClassVar[None] = None

    architecture: FamilyName
    config: dict[str, Any] = Field(
        description="the fields of config.json by transformers' names, without model_type, which `architecture` says"
    )


ModelConfig = Annotated[DenseModel | MixtralModel | FamilyModel | HfModel, Field(discriminator="architecture")]


class AdapterConfig(Section):
    """The adapter that the atoms L, QL and P add to a model whose own parameters are frozen; the names follow PEFT."""

    rank: PositiveInt = Field(64, description="L, QL: rows of A and columns of B")
    alpha: PositiveFloat = Field(16.0, description="L, QL: B A is scaled by this over rank")
    dropout: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0, description="L, QL: share of A's inputs that are dropped at random"
    )
    targets: Annotated[tuple[str, ...], Tuple] = Field(
        ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
        description="L, QL: the matrices of a layer that get A and B",
    )
    save: bool | None = Field(
        None,
        description=(
            "save the adapter for PEFT to repeat.0/adapter after measuring; None: only with pretrained weights"
        ),
    )
    virtual_tokens: PositiveInt = Field(20, description="P: number of trained embeddings before every sequence")
