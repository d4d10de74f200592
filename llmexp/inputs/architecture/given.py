"""The check of a model that the configuration gives by the fields of its config.json."""

from __future__ import annotations

from llmexp.errors import ConfigError, hint
from llmexp.inputs.architecture.fields import UncountedError
from llmexp.inputs.architecture.reading import architecture_of
from llmexp.schema import FamilyModel, ModelConfig

# transformers takes any name, and so a misspelled size would silently be its class's default.
_NAMES = """
    attention_bias attention_chunk_size attention_dropout attn_layer_offset attn_layer_period attn_logit_softcapping
    attn_scale attn_temperature_tuning bos_token_id chunk_size conv_kernel decoder_sparse_step embd_pdrop eos_token_id
    expand expert_layer_offset expert_layer_period final_logit_softcapping first_k_dense_replace floor_scale head_dim
    hidden_act hidden_activation hidden_size initializer_range interleave_moe_layer_step intermediate_size
    intermediate_size_mlp kv_lora_rank layer_norm_epsilon layer_types linear_conv_kernel_dim linear_key_head_dim
    linear_num_key_heads linear_num_value_heads linear_value_head_dim mamba_conv_bias mamba_d_conv mamba_d_state
    mamba_dt_rank mamba_expand mamba_proj_bias max_position_embeddings max_window_layers mlp_only_layers
    moe_intermediate_size moe_layers n_group n_groups n_routed_experts n_shared_experts no_rope_layer_interval
    no_rope_layers norm_topk_prob num_attention_heads num_experts num_experts_per_tok num_heads num_hidden_layers
    num_key_value_heads num_local_experts num_mtp_layers original_max_position_embeddings output_router_logits
    pad_token_id pretraining_tp q_lora_rank qk_nope_head_dim qk_rope_head_dim query_pre_attn_scalar
    rescale_prenorm_residual resid_pdrop residual_in_fp32 rms_norm_eps rope_interleave rope_parameters
    routed_scaling_factor router_aux_loss_coef router_jitter_noise shared_expert_intermediate_size sliding_window
    state_size swiglu_alpha swiglu_limit tie_word_embeddings time_step_floor time_step_limit time_step_max time_step_min
    time_step_rank topk_group use_associative_scan use_bias use_bidirectional_attention use_cache use_conv_bias
    use_mamba_kernels use_mambapy use_qk_norm use_sliding_window v_head_dim vocab_size
"""
FIELDS = frozenset(_NAMES.split())


def check_given(model: ModelConfig) -> None:
    """Raise ConfigError for a field that no family has, and for fields that do not make a model of this family."""
    if not isinstance(model, FamilyModel):
        return
    unknown = next((name for name in model.config if name not in FIELDS), None)
    if unknown is not None:
        raise ConfigError(
            f"model.config.{unknown} is no field of a config.json of transformers' {model.architecture}: "
            f"{hint('model.config', unknown, sorted(FIELDS))}rope_theta and rope_scaling are part of rope_parameters"
        )
    if model.target:
        return
    try:
        architecture_of(model)
    except UncountedError as error:
        raise ConfigError(f"model={model.name}: {error}") from None
