"""Builds a plan's transformers model and its optimizer; this part is the same for every engine."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import cast

import torch
from accelerate import init_empty_weights
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from llmexp.launchers.attention.choice import CONTEXT_PARALLEL, implementation
from llmexp.launchers.models import building, targets
from llmexp.launchers.models.chunked_loss import use_chunked_loss
from llmexp.launchers.models.compiled import compile_regions
from llmexp.launchers.models.keeping import recompute
from llmexp.launchers.models.matrix_optimizer import Groups, MatricesAndRest, matrices_and_rest
from llmexp.launchers.models.weights import weights_of
from llmexp.measure.dtypes import torch_dtype
from llmexp.method import Method
from llmexp.record.what_ran import WhatRan
from llmexp.training.config import TargetOptimizer
from llmexp.training.plan.training_plan import TrainingPlan


def method_of(plan: TrainingPlan) -> Method:
    """Return the method, with all that its atoms set."""
    return Method.parse(plan.method, plan.config.task.name)


def unseeded_model(plan: TrainingPlan, device: torch.device) -> PreTrainedModel:
    """Build the model with the weights that its class happens to give it; the caller seeds them.

    The caller's context decides where they are placed.
    """
    return building.from_configuration(*_kind(plan, device), fused=plan.config.kernels.fused_projections)


def saved_model(plan: TrainingPlan, device: torch.device) -> PreTrainedModel:
    """Build the model as it is saved, with the parameters that transformers knows, as `unseeded_model` does."""
    return building.from_configuration(*_kind(plan, device))


def seeded_model(plan: TrainingPlan, device: torch.device) -> PreTrainedModel:
    """Build the whole model on `device`, with 4-bit layers where the method asks for them."""
    with init_empty_weights(include_buffers=False):
        model = unseeded_model(plan, device)
    return building.materialize(model, weights_of(plan.config)(model), device, method_of(plan).techniques.quantization)


def _kind(plan: TrainingPlan, device: torch.device) -> tuple[PreTrainedConfig, torch.dtype, str, str | None]:
    model, dtype = plan.config.model, torch_dtype(plan.config.precision.parameters)
    attention = (
        CONTEXT_PARALLEL[plan.dims.cp_kind]
        if plan.dims.cp > 1
        else implementation(
            method_of(plan).techniques,
            device,
            records=plan.config.data.isolates,
            flash=plan.config.kernels.flash,
        )
    )
    return building.configuration(model), dtype, attention, model.target


def with_atoms(model: PreTrainedModel, plan: TrainingPlan, *, has_head: bool = True) -> PreTrainedModel:
    """Return the model with other kernels, recomputation, model hooks and an adapter, before an engine takes it.

    Atom C comes last, by `compile_atom`. Of a pipeline's stages only the last `has_head`.
    """
    method = method_of(plan)
    techniques = method.techniques
    if plan.config.kernels.liger:
        from liger_kernel.transformers import _apply_liger_kernel_to_instance  # installed on GPU machines only

        _apply_liger_kernel_to_instance(model=model)
    if plan.config.kernels.chunked_loss and has_head:
        use_chunked_loss(model)
    if techniques.recomputation:
        recompute(model, plan.config.memory, plan.dims.pp * plan.dims.virtual_stages)
    for atom in method.atoms:
        if atom.model_hook:
            targets.load(f"model_hook of atom {atom.code}", atom.model_hook)(model, techniques)
    if plan.config.precision.linears:
        from llmexp.launchers.models.float8 import convert_linears  # torchao takes three seconds to import

        convert_linears(model, plan.engine_config["float8"])
    if plan.config.precision.qat:
        from llmexp.launchers.models.fake_quantizing import round_weights

        round_weights(model, plan.config.precision)
    if techniques.adapter is None:
        return model
    from llmexp.launchers.models.peft_adapters import adapted  # PEFT takes a second to import

    return adapted(model, techniques.adapter, plan)


def compile_atom(model: nn.Module, method: Method, *, cut: bool = False) -> None:
    """Apply atom C; call it once nothing changes the layers' classes any more. With `cut`, matrices are DTensors.

    A checkpoint that is compiled before FSDP2 has made its own classes would be skipped.
    """
    if method.techniques.compilation:
        compile_regions(building.transformer(model), cut=cut)


def trained(module: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that an optimizer gets."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def trained_groups(plan: TrainingPlan, module: nn.Module) -> list[nn.Parameter] | Groups:
    """Return the parameters that an optimizer gets, in two groups where the first class takes matrices alone."""
    chosen = plan.config.optimizer
    return trained(module) if chosen.rest is None else matrices_and_rest(module, chosen.name)


def optimizer(plan: TrainingPlan, parameters: Iterable[nn.Parameter] | Groups) -> torch.optim.Optimizer:
    """Build torch's fused AdamW, or the class that optimizer.target names, beside AdamW where it takes matrices alone.

    A class that updates in backward takes a model, so it gets a module of the trained parameters alone.
    """
    chosen = plan.config.optimizer
    if not isinstance(chosen, TargetOptimizer):
        return torch.optim.AdamW(parameters, **chosen.arguments, fused=True)
    make = partial(targets.load("optimizer.target", chosen.target), **chosen.arguments)
    if chosen.rest is not None:
        rest = partial(torch.optim.AdamW, **({"lr": chosen.lr} | chosen.rest), fused=True)
        return MatricesAndRest(cast(Groups, parameters), make, rest)
    made: torch.optim.Optimizer = make(nn.ParameterList(parameters) if chosen.fused_backward else parameters)
    return made


def updated_by(optimizer: torch.optim.Optimizer) -> WhatRan:
    """Say, for what_ran, which classes update parameters, and of two how many parameters each has updated."""
    if not isinstance(optimizer, MatricesAndRest):
        return {"optimizer_class": class_name(optimizer)}
    names = [class_name(part) for part in optimizer.parts]
    return {
        "optimizer_class": ", ".join(names),
        "optimizer_parameters": dict(zip(names, optimizer.updated(), strict=True)),
    }


def experts_that_ran(config: PreTrainedConfig) -> WhatRan:
    """Say, for what_ran, how transformers computes the experts of a model that has some."""
    return {"experts_implementation": config._experts_implementation} if getattr(config, "num_experts", None) else {}


def class_name(thing: object) -> str:
    """Return the class's dotted name, for what_ran."""
    return f"{type(thing).__module__}.{type(thing).__name__}"
