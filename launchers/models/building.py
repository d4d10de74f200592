"""Builds transformers models with weights given by parameter name.

Every engine and layout thus starts from the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from accelerate import init_empty_weights
from huggingface_hub.errors import StrictDataclassError
from torch import nn
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    LlamaConfig,
    MixtralConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen3Config,
)

from llmexp.errors import ConfigError
from llmexp.launchers.models import targets
from llmexp.launchers.models.fused_projections import fuse_projections
from llmexp.launchers.models.hub import folder_of
from llmexp.launchers.models.quantize import quantized_linear
from llmexp.launchers.models.weights import WeightSource
from llmexp.schema import FamilyModel, HfModel, MixtralModel, ModelConfig, SizedModel

CONFIGURATIONS = {"llama": LlamaConfig, "qwen3": Qwen3Config, "mixtral": MixtralConfig}


def configuration(model: ModelConfig) -> PreTrainedConfig:
    """Translate the model's section to transformers; for architecture hf read it from model.path."""
    if isinstance(model, HfModel):
        return _published(model)
    if isinstance(model, FamilyModel):
        return _of_family(model)
    return CONFIGURATIONS[model.architecture](
        vocab_size=model.vocab_size,
        hidden_size=model.hidden_size,
        intermediate_size=model.intermediate_size,
        num_hidden_layers=model.num_layers,
        num_attention_heads=model.num_heads,
        num_key_value_heads=model.num_kv_heads,
        head_dim=model.head_dim,
        max_position_embeddings=model.max_positions,
        rms_norm_eps=model.rms_norm_eps,
        tie_word_embeddings=model.tie_embeddings,
        rope_parameters={"rope_type": "default", "rope_theta": model.rope_theta},
        use_cache=False,
        **_experts(model),
    )


def _published(model: HfModel) -> PreTrainedConfig:
    path, code = model.path, model.trust_remote_code
    found = folder_of(path, code=code) if model.checkpoint else path
    try:
        return AutoConfig.from_pretrained(found, trust_remote_code=code)
    except ValueError as error:
        needs_code = "trust_remote_code" in str(error)
        why = (
            "it ships its own model code: set model.trust_remote_code=true to run it"
            if needs_code
            else str(error).splitlines()[0]
        )
        raise ConfigError(f"model.path={path}: {why}") from None


def _of_family(model: FamilyModel) -> PreTrainedConfig:
    """Return transformers' configuration of the fields; raise ConfigError for one that it does not take."""
    kind = CONFIG_MAPPING[model.architecture]
    # The modules of Qwen3 with experts ask for head_dim, which their class does not list.
    # Classes of older versions are no dataclasses, and do not tell.
    takes = {field.name for field in fields(kind)} | {"head_dim"} if is_dataclass(kind) else set(model.config)
    unknown = next((name for name in model.config if name not in takes), None)
    if unknown is not None:
        raise ConfigError(f"model.config.{unknown} is no field of transformers' {kind.__name__}")
    try:
        return kind(**model.config)
    except (StrictDataclassError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"model.config of architecture {model.architecture}: {str(error).splitlines()[-1]}") from None


def _experts(model: SizedModel) -> dict[str, Any]:
    """Return the experts' settings.

    They are without a loss that balances the load of experts, which transformers also adds only on request.
    """
    if not isinstance(model, MixtralModel):
        return {}
    return {
        "num_local_experts": model.num_experts,
        "num_experts_per_tok": model.experts_per_token,
        "output_router_logits": False,
    }


def from_configuration(
    config: PreTrainedConfig, dtype: torch.dtype, attention: str, target: str | None = None, *, fused: bool = False
) -> PreTrainedModel:
    """Build a model in training mode by the class or function that `target` names.

    It has the weights that `target` happens to give it; callers seed them. With `fused`, projections of one input are
    one product.
    """
    config.use_cache = False
    model: PreTrainedModel = _maker(target)(
        config, dtype=dtype, attn_implementation=attention, **_trusted(config, target)
    )
    if fused:
        fuse_projections(model)
    return model.train()


def _maker(target: str | None) -> Callable[..., Any]:
    if target is None:
        return AutoModelForCausalLM.from_config
    named = targets.load("model.target", target)
    # AutoModelForCausalLM itself calls this method on the class that it finds.
    return named._from_config if isinstance(named, type) and issubclass(named, PreTrainedModel) else named  # type: ignore[attr-defined]


def _trusted(config: PreTrainedConfig, target: str | None) -> dict[str, bool]:
    """Trust the code of the model where the code of its configuration's class was trusted."""
    return {} if target or type(config).__module__.startswith("transformers.") else {"trust_remote_code": True}


def build(
    config: PreTrainedConfig,
    dtype: torch.dtype,
    attention: str,
    target: str | None = None,
    *,
    weights: Callable[[nn.Module], WeightSource],
    **options: Any,
) -> PreTrainedModel:
    """Build a model on `device` with its weights; options are those of `materialize`.

    It is built tensor by tensor, so that peak memory is the model's own size.
    """
    with init_empty_weights(include_buffers=False):
        model = from_configuration(config, dtype, attention, target)
    return materialize(model, weights(model), **options)


def materialize(
    model: PreTrainedModel, source: WeightSource, device: torch.device, quantization: str | None = None
) -> PreTrainedModel:
    """Give every parameter of a model on the meta device its values.

    With `quantization` the layers' matrices become frozen 4-bit weights.
    """
    # A CPU draws each matrix in one thread, and so several matrices at a time.
    filling = ThreadPoolExecutor(torch.get_num_threads()) if device.type == "cpu" and not quantization else None
    filled: list[Future[None]] = []
    # A list of the modules themselves would keep every layer that a 4-bit one has replaced.
    for prefix in [path for path, _ in model.named_modules()]:
        module = model.get_submodule(prefix)
        for leaf, parameter in list(module.named_parameters(recurse=False)):
            weight = torch.empty_like(parameter, device=device)
            if filling:
                filled.append(filling.submit(source, f"{prefix}.{leaf}", weight))
            else:
                source(f"{prefix}.{leaf}", weight)
            setattr(module, leaf, nn.Parameter(weight, requires_grad=parameter.requires_grad))
        if quantization and isinstance(module, nn.Linear) and module is not model.get_output_embeddings():
            model.set_submodule(prefix, quantized_linear(module, quantization))
    for one in filled:
        one.result()
    if filling:
        filling.shutdown()
    model.tie_weights()
    return model.to(device)


def transformer(model: Any) -> PreTrainedModel:
    """Return the transformers model, without the adapter where there is one."""
    return model.get_base_model() if hasattr(model, "peft_config") else model


def named_weights(model: Any) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield all parameters; those of the model itself have the names that they have without an adapter."""
    inner = dict(transformer(model).named_parameters())
    yield from ((name.replace(".base_layer.", "."), parameter) for name, parameter in inner.items())
    own = {id(parameter) for parameter in inner.values()}
    yield from ((name, parameter) for name, parameter in model.named_parameters() if id(parameter) not in own)


class ExactBuffers:
    """Copies of a model's buffers in the dtype they were made in.

    Engines that cast the module would round the rotary frequencies to bf16.
    """

    def __init__(self, model: nn.Module) -> None:
        self._kept = [
            (module, name, buffer.clone())
            for module in model.modules()
            for name, buffer in module.named_buffers(recurse=False)
        ]

    def restore(self, device: torch.device) -> None:
        """Put the kept buffers back, on `device`."""
        for module, name, buffer in self._kept:
            setattr(module, name, buffer.to(device))


def take_buffers(model: nn.Module, exact: nn.Module) -> None:
    """Give a model the buffers of another of its kind, which was made where nothing changes dtypes.

    ZeRO-3 makes all tensors in the dtype of the parameters.
    """
    for path, module in exact.named_modules():
        for name, buffer in module.named_buffers(recurse=False):
            setattr(model.get_submodule(path), name, buffer)
