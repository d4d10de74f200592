"""A plan's Llama in megatron-core: this rank's pipeline stages, each in Megatron's own data parallelism."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.tensor_parallel import model_parallel_cuda_manual_seed
from megatron.core.transformer import ModuleSpec, TransformerConfig
from megatron.core.transformer.moe import moe_utils
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules, get_num_layers_to_build
from torch import nn
from torch.nn import functional

from llmexp.launchers.attention.causal import flash
from llmexp.launchers.megatron.chunked_loss import ChunkedLoss
from llmexp.launchers.megatron.context import CONTEXT_PARALLEL
from llmexp.launchers.megatron.weights import fill_stage
from llmexp.launchers.rank.frame import PEERS_TIMEOUT
from llmexp.measure.dtypes import torch_dtype
from llmexp.method import Method
from llmexp.schema import SizedModel
from llmexp.training.plan.training_plan import TrainingPlan

# Megatron's router asks whether TransformerEngine's product is None.
# Without TransformerEngine the name is not defined (0.15, 0.16.1).
if not hasattr(moe_utils, "te_general_gemm"):
    moe_utils.te_general_gemm = None


def form_groups(plan: TrainingPlan) -> None:
    """Divide the ranks by tensor, context, data and pipeline degree, tensor fastest.

    ParallelDims.replica_of counts in the same order.
    Experts are divided over neighbors among the ranks of context and data degree.
    """
    dims = plan.dims
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=dims.tp,
        pipeline_model_parallel_size=dims.pp,
        virtual_pipeline_model_parallel_size=dims.virtual_stages if dims.virtual_stages > 1 else None,
        context_parallel_size=dims.cp,
        expert_model_parallel_size=dims.ep,
        expert_tensor_parallel_size=dims.expert_tensor,
        create_gloo_process_groups=False,
        order="tp-cp-ep-dp-pp",
        distributed_timeout_minutes=int(PEERS_TIMEOUT.total_seconds() / 60),
    )
    model_parallel_cuda_manual_seed(plan.config.seed)


def transformer_config(plan: TrainingPlan) -> TransformerConfig:
    """Return Megatron's configuration of the model and its schedule.

    Megatron initializes no weights, because this project sets them.
    """
    dtype = torch_dtype(plan.config.precision.parameters)
    return TransformerConfig(
        **plan.engine_config["transformer"],
        activation_func=functional.silu,
        params_dtype=dtype,
        pipeline_dtype=dtype,
        perform_initialization=False,
        finalize_model_grads_func=finalize_model_grads,
    )


def stages(plan: TrainingPlan, config: TransformerConfig) -> list[DistributedDataParallel]:
    """Build this rank's model chunks, one for each virtual stage, with seeded weights."""
    ddp = DistributedDataParallelConfig(**plan.engine_config["ddp"])
    chunks = [_stage(plan, config, index) for index in range(plan.dims.virtual_stages)]
    # One chunk's buckets overlap only with its own backward; Megatron's training script does the same.
    wrapped = [
        DistributedDataParallel(config, ddp, chunk, disable_bucketing=index > 0) for index, chunk in enumerate(chunks)
    ]
    synced = [chunk.no_sync for chunk in wrapped]
    config.no_sync_func = synced if len(synced) > 1 else synced[0]
    return wrapped


def _stage(plan: TrainingPlan, config: TransformerConfig, index: int) -> GPTModel:
    model, virtual = plan.config.model, index if plan.dims.virtual_stages > 1 else None
    assert isinstance(model, SizedModel)
    place = {"ignore_virtual": False, "vp_stage": virtual}
    stage = GPTModel(
        config=config,
        transformer_layer_spec=_block(plan, config, virtual),
        vocab_size=model.vocab_size,
        max_sequence_length=plan.config.data.seq_len,
        pre_process=parallel_state.is_pipeline_first_stage(**place),
        post_process=parallel_state.is_pipeline_last_stage(**place),
        share_embeddings_and_output_weights=model.tie_embeddings,
        position_embedding_type="rope",
        rotary_base=model.rope_theta,
        vp_stage=virtual,
    )
    # Megatron creates a router's weights on the host.
    stage.to(torch.cuda.current_device())
    fill_stage(stage, model, plan.config.seed)
    if plan.config.kernels.chunked_loss and stage.post_process:
        ChunkedLoss(stage)
    return stage.train()


def _block(plan: TrainingPlan, config: TransformerConfig, virtual: int | None) -> TransformerBlockSubmodules:
    layers = get_num_layers_to_build(config, vp_stage=virtual)
    return TransformerBlockSubmodules(layer_specs=[_layer(plan)] * layers, layer_norm=_RMSNorm)


def _layer(plan: TrainingPlan) -> ModuleSpec:
    shape = plan.engine_config["transformer"]
    spec = get_gpt_layer_local_spec(
        num_experts=shape.get("num_moe_experts"), normalization="RMSNorm", qk_layernorm=shape["qk_layernorm"]
    )
    attention = spec.submodules.self_attention
    changes: dict[str, Any] = {}
    with_flash, sent = (
        Method.parse(plan.method, plan.config.task.name).techniques.flash_attention,
        plan.engine_config["transformer"]["cp_comm_type"],
    )
    if sent:
        changes["core_attention"] = CONTEXT_PARALLEL[sent, with_flash]
    elif with_flash:
        changes["core_attention"] = _FlashAttention
    if shape["qk_layernorm"]:
        changes |= {"q_layernorm": _RMSNorm, "k_layernorm": _RMSNorm}
    attention.submodules = replace(attention.submodules, **changes)
    spec.submodules = replace(spec.submodules, input_layernorm=_RMSNorm, pre_mlp_layernorm=_RMSNorm)
    return spec


class _RMSNorm(nn.RMSNorm):
    """torch's RMSNorm for Megatron.

    Under sequence parallelism it marks its gain, so that the gradient is summed over the tensor-parallel ranks.
    """

    def __init__(self, config: TransformerConfig, hidden_size: int, eps: float = 1e-5, **_: Any) -> None:
        super().__init__(hidden_size, eps=eps, device=torch.cuda.current_device(), dtype=config.params_dtype)
        setattr(self.weight, "sequence_parallel", config.sequence_parallel)  # noqa: B010


class _FlashAttention(nn.Module):
    """Atom F: causal attention by torch's flash kernel only.

    It raises RuntimeError where that kernel cannot take the inputs.
    """

    def __init__(self, config: TransformerConfig, softmax_scale: float | None = None, **_: Any) -> None:
        super().__init__()
        self._scale = softmax_scale

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: None, **_: Any
    ) -> torch.Tensor:
        """Compute attention; the result is [seq, batch, heads x head_dim].

        query is [seq, batch, heads, head_dim], key and value are [seq, batch, kv_heads, head_dim].
        """
        query, key, value = (part.permute(1, 2, 0, 3) for part in (query, key, value))
        return flash(query, key, value, self._scale).permute(2, 0, 1, 3).flatten(2)
