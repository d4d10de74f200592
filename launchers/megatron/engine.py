"""The megatron-core engine: it says what it cannot do here, and has a configuration for every supported combination."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from llmexp.dtypes import HALF, SCALED, SINGLE, bytes_of
from llmexp.inputs.shape import shape_of
from llmexp.launch.commands import ranks_of
from llmexp.method import Method, Techniques
from llmexp.record.plan import Command
from llmexp.schema import CpKind, MixtralModel, SizedModel
from llmexp.schema.machine import BLACKWELL
from llmexp.training.config import AdamW, TargetOptimizer, TrainingConfig
from llmexp.training.engine import TrainingEngine
from llmexp.training.limits import PACKED, flash_without_bf16, other_schedule
from llmexp.training.plan.dims import ParallelDims
from llmexp.training.plan.float8 import by_transformer_engine, weight_bytes
from llmexp.training.plan.memory import StatePlacement, Storage
from llmexp.training.plan.schedules import ANY, GROUPS_OF_PP, Passes

WORKER = "llmexp.launchers.megatron.worker"
# These are Megatron's names for the kinds of context parallelism.
CP_COMM_TYPES: dict[CpKind | None, str | None] = {None: None, "ring": "p2p", "ulysses": "a2a"}
ARCHITECTURES = ("llama", "qwen3", "mixtral")
# Dtypes of parameters, gradients, master and moments that Megatron's optimizers have without TransformerEngine.
PRECISIONS = {
    ("fp32", "fp32", "fp32", "fp32"),
    ("bf16", "bf16", "fp32", "fp32"),
    ("bf16", "fp32", "fp32", "fp32"),
    ("bf16", "bf16", "bf16", "bf16"),
    ("fp16", "fp16", "fp32", "fp32"),
    ("fp16", "fp32", "fp32", "fp32"),
}
# Megatron compiles each of these by torch.compile; none needs TransformerEngine or Apex.
FUSIONS = ("bias_activation_fusion", "bias_dropout_fusion", "cross_entropy_loss_fusion")


class MegatronEngine(TrainingEngine):
    """An engine for data, tensor, sequence, context, pipeline and expert parallelism; Z1 is a distributed optimizer."""

    name = "megatron"
    degrees = ("dp", "tp", "pp", "cp", "ep")
    cuts = ("ends_as_layers", "etp")
    cp_chunks: ClassVar[Mapping[CpKind, int]] = {"ring": 2, "ulysses": 2}
    sets_updates = chunks_loss = True
    dtypes = (SINGLE, HALF, SCALED)
    launchers = ("spawn", "torchrun", "fork")
    modules = ("torch", "megatron.core")
    extras = "train,megatron"
    distributions = ("megatron-core", "torch", "transformer-engine", "apex")
    without_compiling = f"'+engine.options.transformer={{{','.join(f'{name}:false' for name in FUSIONS)}}}'"
    schedules: ClassVar[Mapping[str, Passes]] = {"1f1b": ANY, "interleaved": GROUPS_OF_PP}

    def unsupported(self, config: TrainingConfig, techniques: Techniques, dims: ParallelDims) -> str | None:
        """Say what the package or this project's loop lacks."""
        lacks = (
            _lacks_atom(config, techniques)
            or _lacks_degree(config, dims)
            or _lacks_model(config)
            or _lacks_states(config, techniques)
        )
        if config.data.isolates:
            lacks = (
                lacks
                or f"{PACKED} needs attention within records, which megatron-core's lacks here: set data.pack=false"
            )
        return f"engine=megatron: {lacks}" if lacks else flash_without_bf16(config, techniques)

    def compiles(self, config: TrainingConfig) -> bool:
        """Tell whether the ranks compile Megatron's fusions."""
        chosen = _fusions(config) | config.engine.options.get("transformer", {})
        return any(chosen.get(name) for name in FUSIONS)

    def recomputes_whole(self, techniques: Techniques) -> bool:
        """Tell whether recomputed layers run to their end, which those of Megatron's checkpoints do (0.16.1)."""
        return True

    def storage(self, config: TrainingConfig, techniques: Techniques) -> Storage:
        """Describe ZeRO-1's state; gradients narrower than the master are copied to its dtype, their buffers stay."""
        made, precision = replace(super().storage(config, techniques), gradients_stay=True), config.precision
        if by_transformer_engine(config):
            made = replace(made, parameters=replace(made.parameters, bytes_per_parameter=_bytes_in_fp8(config)))
        if precision.gradients == precision.master:
            return made
        return replace(
            made,
            update=(made.gradients, StatePlacement(bytes_of(precision.master), made.optimizer.partitioned)),
        )

    def native_config(self, config: TrainingConfig, techniques: Techniques, dims: ParallelDims) -> dict[str, Any]:
        """Return the arguments of Megatron's TransformerConfig, DistributedDataParallelConfig and OptimizerConfig."""
        partitioned = techniques.zero_stage > 0
        return {
            "transformer": _shape(config)
            | _fusions(config)
            | _experts(config, dims)
            | _layout(config, dims)
            | _recomputation(techniques, config.memory.recompute_layers),
            "ddp": {
                "grad_reduce_in_fp32": config.precision.gradients == "fp32",
                "overlap_grad_reduce": True,
                "use_distributed_optimizer": partitioned,
                "overlap_param_gather": partitioned,
            },
            "optimizer": _optimizer(config)
            | {"use_distributed_optimizer": partitioned, "overlap_param_gather": partitioned},
        }

    def command(self, config: TrainingConfig, dims: ParallelDims) -> Command:
        """Return the command that starts one rank per device."""
        started = ranks_of(config, dims.world_size, WORKER)
        return started.model_copy(update={"env": _queues(config, dims) | started.env})


def _bytes_in_fp8(config: TrainingConfig) -> float:
    """Return the mean bytes of a parameter where those of layers' matrices are in fp8."""
    shape, rest = shape_of(config.model), bytes_of(config.precision.parameters)
    layers = shape.linear_parameters / shape.parameters if shape else 1.0
    return layers * weight_bytes(config) + (1 - layers) * rest


def _shape(config: TrainingConfig) -> dict[str, Any]:
    model = config.model
    if not isinstance(model, SizedModel):
        return {}
    return {
        "num_layers": model.num_layers,
        "hidden_size": model.hidden_size,
        "ffn_hidden_size": model.intermediate_size,
        "num_attention_heads": model.num_heads,
        "num_query_groups": model.num_kv_heads,
        "kv_channels": model.head_dim,
        "normalization": "RMSNorm",
        "layernorm_epsilon": model.rms_norm_eps,
        "qk_layernorm": model.architecture == "qwen3",
        "gated_linear_unit": True,
        "add_bias_linear": False,
        "bf16": config.precision.parameters == HALF,
        "fp16": config.precision.scales_loss,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
    }


def _fusions(config: TrainingConfig) -> dict[str, Any]:
    """Return the fusions that Megatron's own arguments turn on, and its fused cross entropy; on cpu none."""
    compiled = config.hardware.device == "cuda"
    return {
        # The numbers of tokens of an expert differ from step to step, and each new one could be compiled in the window.
        "bias_activation_fusion": compiled and not isinstance(config.model, MixtralModel),
        "bias_dropout_fusion": compiled,
        # Its backward rounds every gradient to bf16 (0.16.1).
        "cross_entropy_loss_fusion": compiled
        and config.precision.parameters == "bf16"
        and not config.kernels.chunked_loss,
        "cross_entropy_fusion_impl": "native",
    }


def _queues(config: TrainingConfig, dims: ParallelDims) -> dict[str, str]:
    """Return the variable by which kernels start in the order of their launches, which tp and cp rely on to overlap.

    Blackwell and later GPUs do without it.
    """
    hardware = config.hardware
    alone = hardware.device == "cuda" and (hardware.sm or 0) < BLACKWELL and (dims.tp > 1 or dims.cp > 1)
    return {"CUDA_DEVICE_MAX_CONNECTIONS": "1"} if alone else {}


def _experts(config: TrainingConfig, dims: ParallelDims) -> dict[str, Any]:
    """Return Mixtral's routing: softmax over the chosen experts' logits, no dropped token, no load-balancing loss."""
    model = config.model
    if not isinstance(model, MixtralModel):
        return {}
    return {
        "num_moe_experts": model.num_experts,
        "moe_router_topk": model.experts_per_token,
        "moe_ffn_hidden_size": model.intermediate_size,
        "moe_router_load_balancing_type": "none",
        "moe_router_pre_softmax": False,
        # With tp, alltoall gathers different numbers of tokens from the tensor-parallel ranks, which gloo cannot do.
        "moe_token_dispatcher_type": "allgather" if _counts_differ_on_gloo(config, dims) else "alltoall",
        "expert_model_parallel_size": dims.ep,
    } | ({} if dims.etp is None else {"expert_tensor_parallel_size": dims.etp})


def _counts_differ_on_gloo(config: TrainingConfig, dims: ParallelDims) -> bool:
    return dims.expert_tensor > 1 and config.hardware.device == "cpu"


def _layout(config: TrainingConfig, dims: ParallelDims) -> dict[str, Any]:
    interleaved = dims.virtual_stages > 1
    return {
        "tensor_model_parallel_size": dims.tp,
        "sequence_parallel": dims.sequence,
        "pipeline_model_parallel_size": dims.pp,
        **_ends(dims),
        "virtual_pipeline_model_parallel_size": dims.virtual_stages if interleaved else None,
        "context_parallel_size": dims.cp,
        "cp_comm_type": CP_COMM_TYPES[dims.cp_kind],
        # On the host a tensor would be freed while it is still being sent, and training would silently go wrong
        # (0.16.1 on gloo).
        "deallocate_pipeline_outputs": dims.pp > 1 and config.hardware.device == "cuda",
        "batch_p2p_comm": not interleaved,
        "overlap_p2p_comm": interleaved,
    }


def _ends(dims: ParallelDims) -> dict[str, Any]:
    part = dims.rank_part
    counted = {
        "account_for_embedding_in_pipeline_split": part.embedding_as_layer,
        "account_for_loss_in_pipeline_split": part.head_as_layer,
    }
    return {name: True for name, counts in counted.items() if counts}


def _recomputation(techniques: Techniques, first_layers: int | None) -> dict[str, Any]:
    if techniques.attention_recomputation:
        return {"recompute_granularity": "selective", "recompute_modules": ["core_attn"]}
    if not techniques.recomputation:
        return {}
    chosen = ("block", first_layers) if first_layers else ("uniform", 1)  # uniform: layers between two kept inputs
    return {"recompute_granularity": "full", "recompute_method": chosen[0], "recompute_num_layers": chosen[1]}


def _optimizer(config: TrainingConfig) -> dict[str, Any]:
    chosen = config.optimizer
    constants = {}
    if isinstance(chosen, AdamW):
        constants = {
            "adam_beta1": chosen.betas[0],
            "adam_beta2": chosen.betas[1],
            "adam_eps": chosen.eps,
            "weight_decay": chosen.weight_decay,
        }
    return {
        "optimizer": "adam",
        "lr": chosen.lr,
        **constants,
        "clip_grad": chosen.clip_norm or 0.0,
        # For Megatron "bf16" means bf16 parameters beside an fp32 copy; without it the parameters are updated in place.
        "bf16": config.precision.master != config.precision.parameters and not config.precision.scales_loss,
    } | (_scaled(config) if config.precision.scales_loss else {})


def _scaled(config: TrainingConfig) -> dict[str, Any]:
    """Return the arguments of Megatron's scaler, whose scale falls after every overflow, as those of others do."""
    return {
        "fp16": True,
        "initial_loss_scale": 2.0**config.precision.initial_scale_power,
        "min_loss_scale": 1.0,
        "loss_scale_window": config.precision.scale_window,
        "hysteresis": 1,
    }


def _lacks_atom(config: TrainingConfig, techniques: Techniques) -> str | None:
    if techniques.zero_stage > 1:
        return (
            f"Z{techniques.zero_stage}: megatron-core's distributed optimizer partitions optimizer states only, "
            "which is Z1"
        )
    if techniques.offload_optimizer:
        return "O: llmexp does not use megatron-core's offload"
    if techniques.compilation:
        return "C compiles transformers' decoder layers, not megatron-core's"
    if techniques.adapter:
        return "L, QL and P are PEFT adapters for transformers models, not megatron-core's"
    if techniques.quantization:
        return "Q replaces linear layers, which megatron-core splits over ranks itself"
    atoms = Method.parse(config.method, config.task.name).atoms
    foreign = [atom.code for atom in atoms if atom.model_hook or atom.sets.keys() & techniques.extra.keys()]
    return f"{', '.join(foreign)} changes transformers models, not megatron-core's" if foreign else None


def _lacks_degree(config: TrainingConfig, dims: ParallelDims) -> str | None:
    if isinstance(config.model, MixtralModel) and dims.tp > 1 and not dims.sequence:
        return f"experts with parallelism.tp={dims.tp} need parallelism.sequence=true"
    return other_schedule(dims, MegatronEngine.schedules) or _trains_wrongly(config, dims)


def _trains_wrongly(config: TrainingConfig, dims: ParallelDims) -> str | None:
    """Say which user's option Megatron or this loop would accept and then train wrongly or fail (0.16.1 on gloo)."""
    chosen = config.engine.options.get("transformer", {})
    if dims.pp > 1 and config.hardware.device == "cpu" and chosen.get("deallocate_pipeline_outputs"):
        return "deallocate_pipeline_outputs frees tensors that a host is still sending, and trains wrongly"
    if _counts_differ_on_gloo(config, dims) and chosen.get("moe_token_dispatcher_type", "allgather") != "allgather":
        return "with parallelism.tp gloo runs moe_token_dispatcher_type=allgather only"
    if dims.etp is not None and dims.ep == 1:
        return f"parallelism.etp={dims.etp} sums no gradients over tp unless experts are shared out: set parallelism.ep"
    if chosen.get("moe_grouped_gemm"):
        return (
            "moe_grouped_gemm needs TransformerEngine's or another package's kernels, which llmexp does not use: "
            "experts run one by one"
        )
    if dims.virtual_stages > 1 and chosen.get("batch_p2p_comm"):
        return "the interleaved schedule with batch_p2p_comm trains wrongly"
    return None


def _lacks_model(config: TrainingConfig) -> str | None:
    if config.model.target:
        return "it builds its own model, not model.target"
    if config.model.architecture not in ARCHITECTURES:
        return f"it builds architecture {', '.join(ARCHITECTURES)}, not {config.model.architecture}"
    return None


def _lacks_states(config: TrainingConfig, techniques: Techniques) -> str | None:
    precision, chosen = config.precision, config.optimizer
    if isinstance(chosen, TargetOptimizer) or chosen.implementation != "torch":
        return f"its optimizer is AdamW (optimizer=adamw), not optimizer={chosen.name}"
    dtypes = (precision.parameters, precision.gradients, precision.master, precision.moments)
    if dtypes not in PRECISIONS:
        return (
            f"its optimizers do not support parameters, gradients, master copy and moments in {', '.join(dtypes)} "
            f"(precision={precision.name})"
        )
    if techniques.zero_stage and precision.master == "bf16":
        return f"Z1: its distributed optimizer keeps an fp32 master copy, which precision={precision.name} lacks"
    if precision.scales_loss and isinstance(config.model, MixtralModel):
        return f"precision={precision.name}: its optimizer of experts would scale by another factor than the loss has"
    return None


ENGINE = MegatronEngine()
