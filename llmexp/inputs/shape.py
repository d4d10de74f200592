"""A model's shape in numbers: its parameters by part and its FLOPs per token, computed without building the model."""

from __future__ import annotations

from dataclasses import dataclass

from llmexp.inputs.hf_config import config_of
from llmexp.schema import FamilyModel, HfModel, ModelConfig

# `ModelShape` counts the parameters of these architectures of transformers exactly.
COUNTABLE = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "llama",
    "Qwen3ForCausalLM": "qwen3",
    "MixtralForCausalLM": "mixtral",
}


@dataclass(frozen=True)
class RankPart:
    """How a model is cut: into parts of matrices, of layers, of its experts and of an expert's matrices.

    In a pipeline the embedding, the head or both may count as a layer where the layers are shared out.
    """

    tp: int = 1
    pp: int = 1
    ep: int = 1
    etp: int = 1
    v_shaped: bool = False
    """The first and the last stage are on one rank."""
    embedding_as_layer: bool = False
    head_as_layer: bool = False

    def stage_layers(self, layers: int) -> tuple[int, int, int]:
        """Return the layers of a pipeline's first rank, of one between, 0 where there is none, and of its last."""
        each = (layers + self.embedding_as_layer + self.head_as_layer) // self.pp
        return each - self.embedding_as_layer, each * (self.pp > 2), each - self.head_as_layer

    def stage_ends(self, embedding: int, norm: int, *, tied: bool) -> tuple[int, int, int]:
        """Return the parameters outside of layers of the same three ranks, of which the first has the embedding.

        The last has the last norm and the head. With tied embeddings its head is a copy, unless it is the first too.
        """
        both = norm + embedding * (1 if tied else 2)
        return (both,) * 3 if self.v_shaped else (embedding, 0, norm + embedding)


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a Llama-like decoder with grouped-query attention, gated MLP or experts, RMSNorm and no biases."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    tie_embeddings: bool
    qk_norm: bool = False
    num_experts: int | None = None
    experts_per_token: int | None = None

    @property
    def linear_parameters(self) -> int:
        """The weights of the decoder layers' matrices: query, key, value, output, router; each MLP's gate, up, down."""
        queries = self.num_heads * self.head_dim
        keys_and_values = 2 * self.num_kv_heads * self.head_dim
        attention = self.hidden_size * (queries + keys_and_values) + queries * self.hidden_size
        return self.num_layers * attention + self.router_parameters + self._mlp_parameters(self.num_experts or 1)

    @property
    def matrices(self) -> dict[str, tuple[int, int]]:
        """The input and output sizes of a dense decoder layer's matrices, by transformers' names."""
        queries, keys, wide = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim, self.intermediate_size
        mlp = {
            "gate_proj": (self.hidden_size, wide),
            "up_proj": (self.hidden_size, wide),
            "down_proj": (wide, self.hidden_size),
        }
        attention = {"q_proj": queries, "k_proj": keys, "v_proj": keys}
        return (
            {name: (self.hidden_size, outputs) for name, outputs in attention.items()}
            | {"o_proj": (queries, self.hidden_size)}
            | mlp
        )

    @property
    def active_linear_parameters(self) -> int:
        """The `linear_parameters` that a token is multiplied with, of experts only those of `experts_per_token`."""
        idle = (self.num_experts or 0) - (self.experts_per_token or 0)
        return self.linear_parameters - self._mlp_parameters(idle)

    @property
    def expert_parameters(self) -> int:
        """The weights of all layers' experts; 0 for a dense model."""
        return self._mlp_parameters(self.num_experts or 0)

    @property
    def router_parameters(self) -> int:
        """The weights of the matrices that choose experts; 0 for a dense model."""
        return self.num_layers * (self.num_experts or 0) * self.hidden_size

    def _mlp_parameters(self, experts: int) -> int:
        return self.num_layers * experts * 3 * self.hidden_size * self.intermediate_size

    @property
    def norm_parameters(self) -> int:
        """The gains of all RMSNorms, and of the query and key norms where the architecture has them."""
        per_layer = 2 * self.hidden_size + (2 * self.head_dim if self.qk_norm else 0)
        return self.num_layers * per_layer + self.hidden_size

    @property
    def embedding_parameters(self) -> int:
        """The parameters of the input embedding, which is looked up, not multiplied."""
        return self.vocab_size * self.hidden_size

    @property
    def head_parameters(self) -> int:
        """The output projection's own weights; 0 where it shares those of the embedding."""
        return 0 if self.tie_embeddings else self.vocab_size * self.hidden_size

    @property
    def parameters(self) -> int:
        """The number of all parameters."""
        return self.linear_parameters + self.norm_parameters + self.embedding_parameters + self.head_parameters

    @property
    def parameters_outside_layers(self) -> int:
        """The parameters of embedding, last norm and head."""
        return self.embedding_parameters + self.hidden_size + self.head_parameters

    @property
    def active_parameters(self) -> int:
        """The parameters that a token meets: all except those of experts that it is not sent to."""
        return self.parameters - self.linear_parameters + self.active_linear_parameters

    def parameters_of_rank(self, part: RankPart) -> int:
        """Return the parameters of the rank that holds most.

        Layers are shared out over pp and experts over ep; tp cuts matrices and embeddings, not norms and routers.
        The first stage holds the embedding too, and the last stage the last norm and the head.
        With tied embeddings, the last of several stages holds a copy of them.
        """
        return self._fullest(part)[0]

    def expert_parameters_of_rank(self, part: RankPart) -> int:
        """Return the expert parameters of that rank; whole experts are shared out over ep, and each is cut by etp."""
        return self._fullest(part)[1]

    def ends_of_rank(self, part: RankPart) -> int:
        """Return the parameters of embedding, last norm and head on the rank that holds most of them."""
        if part.pp > 1:
            return max(self._ends_of_stages(part))
        return self.hidden_size + (self.embedding_parameters + self.head_parameters) // part.tp

    def _fullest(self, part: RankPart) -> tuple[int, int]:
        if part.pp == 1:
            return self._held(self.num_layers, self.ends_of_rank(part), part)
        stages = zip(part.stage_layers(self.num_layers), self._ends_of_stages(part), strict=True)
        return max(self._held(layers, beside, part) for layers, beside in stages)

    def _ends_of_stages(self, part: RankPart) -> tuple[int, int, int]:
        return part.stage_ends(self.embedding_parameters // part.tp, self.hidden_size, tied=self.tie_embeddings)

    def _held(self, layers: int, outside: int, part: RankPart) -> tuple[int, int]:
        """Return all parameters of a rank with so many layers, and those of experts among them."""
        whole = self.norm_parameters - self.hidden_size + self.router_parameters
        cut = self.linear_parameters - self.expert_parameters - self.router_parameters
        experts = self.expert_parameters * layers // (self.num_layers * part.etp * part.ep)
        return (cut // part.tp + whole) * layers // self.num_layers + experts + outside, experts

    def flops_per_token(self, seq_len: float, *, linear_trained: bool = True, head_trained: bool = True) -> float:
        """Return the model FLOPs of a token's forward and backward pass, without recomputation.

        Each parameter that the token is multiplied with counts 6 if trained and 4 if frozen. The output projection
        counts; the embedding's lookup, the norms, and experts that the token is not sent to do not.
        Causal attention adds 2 products forward and 4 backward over half of the seq_len x seq_len matrix.
        This is the convention of PaLM (arXiv 2204.02311, appendix B) with the causal half of FlashAttention
        (arXiv 2205.14135).
        """
        matrices = (6 if linear_trained else 4) * self.active_linear_parameters + (
            6 if head_trained else 4
        ) * self.vocab_size * self.hidden_size
        attention = 6 * self.num_layers * self.num_heads * self.head_dim * seq_len
        return float(matrices + attention)

    @property
    def flops_per_product(self) -> int:
        """The FLOPs of one product of attention, such as the scores, in all layers, divided by n x n.

        The product covers the causal half of a square of n x n tokens.
        """
        return self.num_layers * self.num_heads * self.head_dim


def shape_of(model: ModelConfig) -> ModelShape | None:
    """Return the shape of a configured model; None for a model that is not like Llama.

    Those are models with a class of their own, which can be counted only once they are built, and transformers models
    of other architectures (`architecture.reading.architecture_of`).
    """
    if model.target or isinstance(model, FamilyModel):
        return None
    if isinstance(model, HfModel):
        return _shape_of_folder(model)
    sizes = model.model_dump(include={f for f in ModelShape.__dataclass_fields__ if f != "qk_norm"})
    return ModelShape(**sizes, qk_norm=model.architecture == "qwen3")


def architecture_name(model: ModelConfig) -> str:
    """Return the name of a model's architecture; of a folder the model_type of its config.json, of a hub's name hf."""
    if not isinstance(model, HfModel):
        return model.architecture
    return str((config_of(model) or {}).get("model_type", model.architecture))


def _shape_of_folder(model: HfModel) -> ModelShape | None:
    loaded = config_of(model)
    if loaded is None:
        return None
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
        num_experts=loaded["num_local_experts"] if COUNTABLE[architecture] == "mixtral" else None,
        experts_per_token=loaded["num_experts_per_tok"] if COUNTABLE[architecture] == "mixtral" else None,
    )
