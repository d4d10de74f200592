"""CompressRunConfig to CompressPlan: what a model's shape lets a method do, and the digests of what is read."""

from __future__ import annotations

from math import gcd
from pathlib import Path
from typing import Any

from llmexp.compress.config import CompressRunConfig, Prune, Quantize
from llmexp.compress.engine import CompressEngine
from llmexp.compress.plan import CompressPlan
from llmexp.errors import ConfigError
from llmexp.inputs import files
from llmexp.inputs.checkpoint import local_checkpoint
from llmexp.inputs.hf_config import config_of
from llmexp.inputs.shape import shape_of
from llmexp.record.run_id import identity
from llmexp.record.skip import Skip, SkipCode
from llmexp.registry import get_engine

# Families whose experts llm-compressor 0.14 writes so that transformers 5.23 loads them; Mixtral's under other names.
_EXPERT_FAMILIES = ("deepseek_v3", "glm4_moe", "mixtral", "olmoe", "qwen2_moe", "qwen3_moe", "qwen3_next")
# Those in which AWQ of llm-compressor 0.14 scales all that reads a norm, routers and shared experts too.
_SCALED_BY_AWQ = ("deepseek_v3", "qwen3_moe")
# The activations beside which transformers 5.23 loads experts, by the experts' weights.
_ACTIVATIONS_BESIDE_EXPERTS = {"fp8": "fp8", "mxfp4": "fp4"}
_COUNTS_OF_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
_PARTS = {"layers": "layers", "heads": "groups of heads", "mlp": "channels"}


def plan_compression(config: CompressRunConfig) -> CompressPlan:
    """Plan one run, which may be a skip; raises ConfigError for a configuration that cannot run."""
    engine = get_engine(config.task.name, config.engine.name)
    assert isinstance(engine, CompressEngine)
    _check_experts(config)
    _check_groups(config)
    _check_share(config)
    if not _reads_by_made(config):
        files.check_place("text.tokenizer", config.text.tokenizer)
    lacks = engine.unsupported(config)
    return CompressPlan(
        id=identity(config, {}, _contents(config)),
        processes=1,
        devices=1,
        engine_config=engine.native(config),
        command=engine.command(config),
        skip=Skip(code=SkipCode.UNSUPPORTED, reason=lacks) if lacks else None,
        config=config,
    )


def _contents(config: CompressRunConfig) -> dict[str, str]:
    """Return the digests of the checkpoint and of the texts, as far as they are files here."""
    checkpoint, text = local_checkpoint(config.model), config.text
    found = {"checkpoint": checkpoint.digest} if checkpoint else {}
    if text.files:
        found["text"] = files.digest(files.matching(text.files, key="text.files"))
    if config.domain_files:
        found["domains"] = files.digest(files.matching(config.domain_files, key="compress.recovery_domains"))
    tokenizer = Path(text.tokenizer).expanduser()
    if _reads_by_made(config) or not tokenizer.is_dir():
        return found
    return found | {"tokenizer": files.digest(files.below(tokenizer))}


def _reads_by_made(config: CompressRunConfig) -> bool:
    """Tell whether the tokenizer is that of another run's model, which need not be there yet and has its id."""
    return config.model.made is not None and config.text.tokenizer == config.model.path


def _check_experts(config: CompressRunConfig) -> None:
    """Raise ConfigError for experts that are asked for and are not there, or that do not load once compressed."""
    recipe, said, name = config.compress, config_of(config.model), config.model.name
    if said is None:
        return
    kind, has_experts = said.get("model_type"), any(said.get(count) for count in _COUNTS_OF_EXPERTS)
    if has_experts and config.uses_llm_compressor and kind not in _EXPERT_FAMILIES:
        raise ConfigError(
            f"compress.method={recipe.method}: transformers does not load what llm-compressor writes of {kind}'s "
            f"experts, which model={name} has: it does so of {', '.join(_EXPERT_FAMILIES)}"
        )
    if has_experts and config.uses_llm_compressor and isinstance(recipe, Quantize):
        _check_quantized_experts(recipe, said, name)
    if has_experts and isinstance(recipe, Quantize) and not recipe.symmetric:
        raise ConfigError(
            f"compress.symmetric=false: transformers loads no zero points of experts, which model={name} has: set "
            "compress.symmetric=true, with compress.method=rtn or gptq"
        )
    if isinstance(recipe, Quantize) and recipe.layers == "experts" and not has_experts:
        raise ConfigError(f"compress.layers=experts: model={name} has no experts: set compress.layers=all")


def _check_quantized_experts(recipe: Quantize, said: dict[str, Any], name: str) -> None:
    """Raise ConfigError for formats and methods that do not suit experts, even where other layers are taken too."""
    if recipe.activations and recipe.activations != _ACTIVATIONS_BESIDE_EXPERTS.get(recipe.weights):
        raise ConfigError(
            f"compress.activations={recipe.activations}: transformers does not load {recipe.weights} experts beside "
            f"them, and model={name} has experts: set compress.activations=null with compress.method=rtn or gptq"
        )
    if recipe.method == "awq" and (said["model_type"] not in _SCALED_BY_AWQ or _has_dense_layers(said)):
        raise ConfigError(
            f"compress.method=awq: llm-compressor's AWQ suits {' and '.join(_SCALED_BY_AWQ)} without dense layers "
            f"alone, and model={name} is another ({said['model_type']}): choose compress.method=gptq, rtn or autoround"
        )


def _has_dense_layers(said: dict[str, Any]) -> bool:
    """Tell whether some layers of a mixture have an MLP in the place of experts."""
    named = said.get("first_k_dense_replace") or said.get("mlp_only_layers")
    return bool(named) or (said.get("decoder_sparse_step") or 1) > 1


def _inputs(config: CompressRunConfig) -> list[int]:
    """Return the input sizes of the matrices that are compressed, as far as they are known here."""
    recipe, shape, said = config.compress, shape_of(config.model), config_of(config.model) or {}
    if said.get("model_type") not in _EXPERT_FAMILIES:
        return sorted({wide for wide, _ in shape.matrices.values()}) if shape else []
    experts = {said["hidden_size"], _expert_width(said)}
    alone = isinstance(recipe, Quantize) and recipe.layers == "experts"
    return sorted(experts if alone else experts | _inputs_beside_experts(said))


def _expert_width(said: dict[str, Any]) -> int:
    found: int = said.get("moe_intermediate_size") or said["intermediate_size"]
    return found


def _inputs_beside_experts(said: dict[str, Any]) -> set[int]:
    """Return the input sizes of attention, of shared experts and of dense layers, where a mixture has them."""
    heads = said["num_attention_heads"]
    head = said.get("v_head_dim") or said.get("head_dim") or said["hidden_size"] // heads
    shared = said.get("shared_expert_intermediate_size") or (said.get("n_shared_experts") or 0) * _expert_width(said)
    found = {heads * head, shared, said.get("q_lora_rank"), said.get("kv_lora_rank")}
    found.add(said["intermediate_size"] if _has_dense_layers(said) else None)
    if "linear_num_value_heads" in said:
        found.add(said["linear_num_value_heads"] * said["linear_value_head_dim"])
    return {wide for wide in found if wide}


def _check_groups(config: CompressRunConfig) -> None:
    """Raise ConfigError where the weights of a matrix cannot be cut into groups that share a scale."""
    recipe, inputs = config.compress, _inputs(config)
    if not isinstance(recipe, Quantize) or not recipe.group_size:
        return
    if any(wide % recipe.group_size for wide in inputs):
        largest = gcd(*inputs)
        raise ConfigError(
            f"compress.group_size={recipe.group_size} does not divide the inputs of model={config.model.name}, "
            f"{', '.join(map(str, inputs))}: set compress.group_size={largest}, a divisor of it, or null"
        )


def _check_share(config: CompressRunConfig) -> None:
    """Raise ConfigError where a share of the layers or of the groups of heads is none or all of them."""
    recipe, shape = config.compress, shape_of(config.model)
    if not isinstance(recipe, Prune) or not shape:
        return
    counts = {"layers": shape.num_layers, "heads": shape.num_kv_heads, "mlp": shape.intermediate_size}
    count = counts[recipe.method]
    if not 0 < round(count * recipe.share) < count:
        choices = f"{1 / count:.3g} to {1 - 1 / count:.3g}" if count > 1 else "none, it has one alone"
        raise ConfigError(
            f"compress.share={recipe.share:g} of {count} {_PARTS[recipe.method]} of model={config.model.name} takes "
            f"{round(count * recipe.share)}, and some have to go and some to stay: choices are {choices}"
        )
