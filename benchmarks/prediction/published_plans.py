"""Plans of published runs: a row's words, what had to be assumed for them, and what llmexp says of the plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from hydra.core.config_loader import ConfigLoader
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from benchmarks.prediction.cells import Cell
from benchmarks.prediction.published_machines import CARDS_OF_A_NODE, machine_words
from benchmarks.prediction.published_programs import (
    BY_LAYERS,
    TITAN,
    activations_moved,
    attention_share,
    engine_of,
    recomputed_share,
    reduces_beside,
    score_bytes,
    sends_beside,
    sends_beside_forward,
    stages_send_parts,
    tensor_sends,
)
from benchmarks.prediction.published_rows import Row
from llmexp.cli.app import CONFIG, hydra_app
from llmexp.cli.compose import Composer
from llmexp.cli.explain import explain
from llmexp.cli.jobs import plan_of, words_of
from llmexp.cli.overrides import accept
from llmexp.errors import ConfigError
from llmexp.training.plan.training_plan import TrainingPlan

# A file of conf/model whose architecture a family has; the sizes are the row's own.
_BASES = {"llama": "7b", "gpt": "7b", "qwen3": "qwen3-8b", "mixtral": "mixtral", "qwen3_moe": "mixtral"}
_UNLIKE = {
    "gpt": "an MLP of two matrices as a gated one of as many weights, LayerNorm as RMSNorm",
    "qwen3_moe": "no norms of queries and keys",
}
# NVIDIA's programs, whose recipes shard optimizer states, and cut sequences where they cut matrices; with layers that
# stages do not share out evenly embedding and head count as layers (megatron-bridge 0.3.1, recipes/llama/llama3.py).
_NVIDIA = ("megatron-bridge", "megatron-lm", "nemo")
MICRO_OF_ONE = "a micro batch of 1"
_MIXED = "16 bits with masters of 32"
_OF_RECIPES = "optimizer states, sequences and stages by its recipes"
# What notes say of the scales of fp8.
_SCALING = {"gradients of weights in bf16": "rowwise_with_gw_hp", "scaled by row": "rowwise"}
_OF_EARLIER_STEPS = "scales of earlier steps"
_SHORT_ENDS = "first and last stage have one layer fewer"
_COPIED = "sharded inside groups of cards and copied over these"
_HOPPER = ("h100", "h100_96gb", "h200", "h800")
# What notes say of kernels: as many are fused as Liger fuses, and attention is the one of arXiv 2407.08608.
_LIKE_LIGER, _FOR_HOPPER = "MLP and loss in fused kernels", "FlashAttention-3"
# LLMQ casts in the kernels before a product, and its card updates states that lie on the host.
_OWN_KERNELS = "llmq"
# A plain MLP is planned as a gated one whose three matrices have as many weights, in steps that tp divides.
_WIDTH_STEP = 64


@dataclass(frozen=True)
class Planned:
    """What became of a row: its plan, or why there is none, and what the plan assumes that the source does not say."""

    row: Row
    words: tuple[str, ...]
    assumed: tuple[str, ...]
    plan: TrainingPlan | None
    refused: str = ""

    @property
    def cell(self) -> Cell:
        """The row as a run whose speed is known; it needs a plan."""
        assert self.plan is not None
        step_s = self.plan.amount / (self.row.tokens_per_s_per_device * self.row.devices)
        return Cell(
            self.row.source,
            self.plan,
            step_s,
            attention_share=attention_share(self.row),
            score_bytes=score_bytes(self.row),
            tensor_beside=sends_beside(self.row),
            tensor_beside_forward=sends_beside_forward(self.row),
            activations_moved=activations_moved(self.row),
            tensor_sends=tensor_sends(self.row),
            stages_send_parts=stages_send_parts(self.row),
            reduces_beside=reduces_beside(self.row),
        )

    @property
    def skipped(self) -> str:
        """Why llmexp itself would not start the run, although it can be planned."""
        return self.plan.skip.reason if self.plan and self.plan.skip else ""


def planned(row: Row) -> Planned:
    """Plan a row; what llmexp refuses comes back with the reason."""
    if row.family not in _BASES:
        return Planned(row, (), (), None, f"family {row.family} has no shape in llmexp")
    if row.precision == "nvfp4":  # NVIDIA's faster products in it on the GB300 are measured nowhere
        return Planned(row, (), (), None, "products in nvfp4 have no plan in llmexp")
    if row.framework == _OWN_KERNELS and (row.precision == "fp8" or row.offload):
        return Planned(row, (), (), None, "casts and offloading of LLMQ's kind have no plan in llmexp")
    if row.pp > 1 and row.accumulation is None and row.global_batch is None:  # its bubble may be of any size
        return Planned(row, (), (), None, "a pipeline whose source does not name its passes has no plan")
    words, assumed = words_and_assumptions(row)
    loader, master, composer = _composed_once()
    try:
        overrides = accept(loader, words)
        plan = plan_of(composer.container(overrides), words_of(loader, master.hydra, overrides))
    except ConfigError as error:
        return Planned(row, tuple(words), tuple(assumed), None, str(error))
    except (HydraException, OmegaConfBaseException) as error:
        return Planned(row, tuple(words), tuple(assumed), None, str(explain(error)))
    assert isinstance(plan, TrainingPlan)
    return Planned(row, tuple(words), tuple(assumed), plan)


@cache
def _composed_once() -> tuple[ConfigLoader, DictConfig, Composer]:
    with hydra_app() as hydra:
        master = hydra.compose_config(CONFIG, [], RunMode.MULTIRUN)
        return hydra.config_loader, master, Composer(hydra.config_loader, master, [])


def words_and_assumptions(row: Row) -> tuple[list[str], list[str]]:
    """Return the words that plan a row, and what they say that its source does not."""
    assumed: list[str] = []
    words = [f"task={row.kind}", *_model(row, assumed), *machine_words(row, assumed), *_batch(row, assumed)]
    words += [f"engine={engine_of(row)}", *_precision(row, assumed), f"method={_method(row, assumed)}"]
    assumed += [_OF_RECIPES] * _takes_recipes(row)
    words += [*_layout(row), *_optimizer(row, assumed), *_kernels(row), *_recomputed_layers(row)]
    return [*words, "data=synthetic", f"data.seq_len={row.seq_len}", "tracking=none"], assumed


def _precision(row: Row, assumed: list[str]) -> list[str]:
    if row.precision == "":
        assumed.append(_MIXED)
        return ["precision=bf16_mixed"]
    if row.precision == "mxfp8":
        return ["precision=fp8", "precision.scaling=mxfp8"]
    if row.precision == "fp8" and engine_of(row) == "megatron":
        return ["precision=fp8", f"precision.scaling={_engine_scaling(row, assumed)}"]
    scaling = [recipe for said, recipe in _SCALING.items() if said in row.note and row.precision == "fp8"]
    return [f"precision={row.precision}", *(f"precision.scaling={recipe}" for recipe in scaling[:1])]


def _engine_scaling(row: Row, assumed: list[str]) -> str:
    """Return TransformerEngine's recipe: current scales are the default of Megatron-Bridge, and of NeMo since 2025.

    Megatron's own are those of earlier steps, which all had before (megatron-core 0.16, transformer_config.py).
    """
    if _OF_EARLIER_STEPS in row.note:
        return "delayed"
    current = row.framework == "megatron-bridge" or (row.framework == "nemo" and row.date >= "2025")
    assumed.append(f"scales of {'the step' if current else 'earlier steps'} in fp8")
    return "tensorwise" if current else "delayed"


def _model(row: Row, assumed: list[str]) -> list[str]:
    width = row.intermediate or 0
    if row.family == "gpt":
        width = round(width * 2 / 3 / _WIDTH_STEP) * _WIDTH_STEP
    assumed += [_UNLIKE[name] for name in _UNLIKE if name == row.family]
    sizes = {
        "vocab_size": row.vocab,
        "hidden_size": row.hidden,
        "intermediate_size": width,
        "num_layers": row.layers,
        "num_heads": row.heads,
        "num_kv_heads": row.kv_heads,
        "head_dim": row.head_dim,
        "num_experts": row.experts,
        "experts_per_token": row.top_k,
    }
    words = [f"model={_BASES[row.family]}", f"model.name={row.model}", f"model.max_positions={row.seq_len}"]
    words += [f"model.{name}={size}" for name, size in sizes.items() if size is not None]
    return words + ["model.tie_embeddings=true"] * (row.tied == "yes")


def _batch(row: Row, assumed: list[str]) -> list[str]:
    micro, passes = row.micro_batch, row.accumulation
    if micro is None:
        micro = 1
        assumed.append(MICRO_OF_ONE)
    if passes is None:
        passes = max(1, row.global_batch // (micro * row.replicas)) if row.global_batch else 1
        assumed += ["one pass a step"] * (row.global_batch is None)
    return [f"batch.micro={micro}", f"batch.accumulation={passes}"]


def _method(row: Row, assumed: list[str]) -> str:
    adapter = {"": [], "none": [], "lora": ["L"], "qlora": ["QL"]}[row.adapter]
    atoms = [*adapter, *_recomputing(row, assumed)]
    if row.flash == "":
        assumed.append("fused attention")
    if row.compile == "":
        assumed.append("nothing compiled")
    # Megatron compiles its own fusions.
    atoms += ["C"] * (row.compile == "yes" and engine_of(row) != "megatron")
    atoms += _sharded(row, assumed)
    atoms += ["O"] * ("optimizer" in row.offload)
    return "+".join(atoms) or "Naive"


def _recomputing(row: Row, assumed: list[str]) -> Sequence[str]:
    fused = ["F"] * (row.flash != "no")
    if row.recomputation == "":
        assumed.append("no recomputation")
    if row.recomputation == "selective" and row.framework == TITAN:
        assumed.append(
            "recomputation of every second layer" if BY_LAYERS in row.note else "every second product as whole layers"
        )
    elif row.recomputation == "selective" and fused:
        assumed.append("selective recomputation as none")
    elif row.recomputation == "selective":
        return ["RS"]
    return [*fused, *["R"] * (recomputed_share(row) > 0)]


def _sharded(row: Row, assumed: list[str]) -> list[str]:
    if row.replicas == 1:
        # What offloads is ZeRO on one card too.
        return [f"Z{row.sharding}"] if row.sharding and "optimizer" in row.offload else []
    if _shards_by_recipe(row):
        return ["Z1"]
    if row.sharding is None:
        assumed.append("no sharding")
    return [f"Z{row.sharding}"] * bool(row.sharding)


def _kernels(row: Row) -> list[str]:
    """Return the kernels of other programs: LayerNorm is one, and fused attention is FlashAttention-2 but in Megatron.

    So is torch's own. A kernel for Hopper is one that the source names.
    """
    outside = engine_of(row) != "megatron"
    # A plain LayerNorm and GELU are single kernels, as Liger's are; those of llmexp's models are several without C.
    plain = row.family == "gpt" and row.compile != "yes"
    fused = ["kernels.liger=true"] * (outside and (plain or _LIKE_LIGER in row.note))
    old = outside and row.flash != "no" and _FOR_HOPPER not in row.note
    return fused + ["kernels.flash=fa2"] * (old and row.hardware in _HOPPER)


def _recomputed_layers(row: Row) -> list[str]:
    """Return the word for layers of which only some are recomputed."""
    layers = round(recomputed_share(row) * (row.layers or 0))
    return [f"memory.recompute_layers={layers}"] * (0 < layers < (row.layers or 0))


def _layout(row: Row) -> list[str]:
    degrees = {"dp": row.replicas, "tp": row.tp, "pp": row.pp, "cp": row.cp, "ep": row.ep}
    words = [f"parallelism.{name}={size}" for name, size in degrees.items()]
    words += [f"parallelism.virtual_stages={row.virtual_stages}"] * bool(row.virtual_stages)
    words += [f"parallelism.shard={CARDS_OF_A_NODE}"] * (_COPIED in row.note)
    words += [f"parallelism.schedule={row.schedule}"] * bool(row.schedule)
    words += [f"parallelism.etp={row.etp}"] * bool(row.etp)
    short = _SHORT_ENDS in row.note or (_has_recipes(row) and not _is_even(row))
    ends = row.ends_as_layers or "both" * short
    words += [f"parallelism.ends_as_layers={ends}"] * bool(ends)
    cuts = row.sequence_parallel == "yes" or (row.sequence_parallel == "" and _has_recipes(row))
    return words + ["parallelism.sequence=true"] * (cuts and row.tp > 1)


def _takes_recipes(row: Row) -> bool:
    """Tell whether a plan has something of NVIDIA's recipes that the row does not say."""
    silent = row.sequence_parallel == "" and row.tp > 1
    return _shards_by_recipe(row) or (_has_recipes(row) and (silent or not _is_even(row)))


def _shards_by_recipe(row: Row) -> bool:
    return _has_recipes(row) and row.sharding is None and not row.adapter and row.replicas > 1


def _has_recipes(row: Row) -> bool:
    return row.framework in _NVIDIA


def _is_even(row: Row) -> bool:
    return (row.layers or 0) % row.pp == 0


def _optimizer(row: Row, assumed: list[str]) -> list[str]:
    if row.optimizer == "":
        assumed.append("AdamW")
    words = [f"optimizer={row.optimizer or 'adamw'}"]
    words += [f"adapter.rank={row.rank}"] * bool(row.rank)
    return words + ["memory.activation_offload=true"] * ("activations" in row.offload)
