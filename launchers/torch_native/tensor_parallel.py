"""Tensor parallelism by torch's DTensor: every matrix of a Llama, Mistral or Qwen3 is cut over neighboring ranks.

Embedding and head are cut by the vocabulary. The head's logits stay cut, and so does the loss that is made of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any

import torch
from accelerate import init_empty_weights
from torch import distributed, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from transformers import PreTrainedModel

from llmexp.launchers.models import assembly, building
from llmexp.launchers.models.chunked_loss import LossHead
from llmexp.launchers.models.weights import WeightSource, weights_of
from llmexp.launchers.torch_native.cut_experts import Router, layers_of_experts
from llmexp.launchers.torch_native.replicated import optimizer
from llmexp.launchers.torch_native.shared_experts import EXPERT, losses_of, share_experts
from llmexp.launchers.torch_native.wrapped import WrappedModel
from llmexp.measure.dtypes import torch_dtype
from llmexp.training.plan.training_plan import TrainingPlan

REPLICA, TENSOR = "replica", "tensor"


@dataclass(frozen=True)
class Sharers:
    """The ranks that cut matrices, all ranks by their experts, where any share these, and all of a pipeline by axis."""

    matrices: DeviceMesh
    experts: DeviceMesh | None = None
    by_axis: DeviceMesh | None = None


class TensorParallel(WrappedModel):
    """A rank's part of every matrix with its optimizer; replicas average gradients after backward."""

    def __init__(self, plan: TrainingPlan, device: torch.device) -> None:
        dims = plan.dims
        super().__init__(plan)
        mesh = init_device_mesh(device.type, (dims.same_parameters, dims.tp), mesh_dim_names=(REPLICA, TENSOR))
        self._replicas, self._ranks = mesh.get_group(REPLICA), mesh.get_group(TENSOR)
        with init_empty_weights(include_buffers=False):
            model = assembly.unseeded_model(plan, device)
        self.model_class = assembly.class_name(model)
        self.module = materialize_parts(model, weights_of(plan.config)(model), plan, Sharers(mesh[TENSOR]), device)
        self.model = self.module
        self.optimizer = optimizer(plan, assembly.trained_groups(plan, self.module), self._replicas)

    def begin_pass(self, *, last: bool) -> None:
        """Do nothing: gradients stay on their rank until `average`."""

    def average(self) -> None:
        """Give every rank the gradients of its parts, averaged over the replicas."""
        gradients = [settled(parameter) for parameter in assembly.trained(self.module)]
        if self._plan.dims.same_parameters == 1:
            return
        torch._foreach_div_(gradients, self._plan.dims.same_parameters)
        sent = [distributed.all_reduce(each, group=self._replicas, async_op=True) for each in gradients]
        for each in sent:
            each.wait()

    @property
    def holders(self) -> distributed.ProcessGroup:
        """Return the ranks of one replica, each of which holds a part of every matrix."""
        return self._ranks


def materialize_parts(
    model: PreTrainedModel, source: WeightSource, plan: TrainingPlan, ranks: Sharers, device: torch.device
) -> Any:
    """Return a model of the meta device with the method's atoms, of which this rank holds its parts, with values."""
    module = assembly.with_atoms(model, plan, has_head=isinstance(model.get_output_embeddings(), nn.Linear))
    if plan.dims.tp > 1:
        cut_matrices(building.transformer(module), ranks.matrices, along_sequence=plan.dims.sequence)
    if ranks.experts is not None:
        # A pipeline divides its losses itself.
        share_experts(module, ranks.experts[EXPERT], 1.0 if plan.dims.pp > 1 else losses_of(plan.dims))
    buffers = building.ExactBuffers(module)
    module.to_empty(device=device)
    if plan.dims.tp == 1:
        module.tie_weights()
    buffers.restore(device)
    fill_parts(module, source, torch_dtype(plan.config.precision.parameters), device)
    assembly.compile_atom(module, assembly.method_of(plan), cut=plan.dims.tp > 1)
    return module


def cut_matrices(model: PreTrainedModel, ranks: DeviceMesh, *, along_sequence: bool) -> None:
    """Cut the matrices, embedding and head that a Llama or a stage of it has, on whatever device they are.

    Norms stay whole; gradients of their gains are added up where ranks have different inputs. What lies between the
    matrices is whole too, or cut along the sequence; stages take and give it.
    """
    modules = {name: module for name, module in model.named_modules() if next(module.parameters(), None) is not None}
    # A matrix with an adapter is several modules of its own.
    held = [name for name in modules if f"{name}.base_layer" not in modules]
    trains = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    styles = _styles(along_sequence)
    if along_sequence:
        # The embedding's output is whole, as transformers takes positions and masks from its length.
        entered = Replicate() if "model.embed_tokens" in held else Shard(1)
        styles[next(name for name in held if fnmatch(name, "model.layers.*"))] = PrepareModuleInput(
            input_layouts=(entered,), desired_input_layouts=(Shard(1),), use_local_output=True
        )
    found = {name: style for name in held for pattern, style in styles.items() if fnmatch(name, pattern)}
    for name in layers_of_experts(model):
        del found[name]
        found[f"{name}.gate"] = Router()
    parallelize_module(model, ranks, found)
    if model.config.tie_word_embeddings:
        _tie(model.get_input_embeddings(), model.get_output_embeddings(), ranks)
    # Styles let every parameter train.
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(trains[name])


def _styles(along_sequence: bool) -> dict[str, ParallelStyle]:
    between, whole = (Shard(1) if along_sequence else Replicate()), Replicate()
    layer = "model.layers.*"
    into = {f"{layer}.self_attn.{name}_proj" for name in "qkv"} | {
        f"{layer}.mlp.{name}_proj" for name in ("gate", "up")
    }
    out = {f"{layer}.self_attn.o_proj", f"{layer}.mlp.down_proj"}
    norms = {f"{layer}.input_layernorm", f"{layer}.post_attention_layernorm", "model.norm"}
    # All matrices that read a hidden state share one gathering of it, and one reduction of its gradient.
    styles: dict[str, ParallelStyle] = {
        f"{layer}.self_attn": PrepareModuleInput(
            input_kwarg_layouts={"hidden_states": between}, desired_input_kwarg_layouts={"hidden_states": whole}
        ),
        f"{layer}.mlp": PrepareModuleInput(input_layouts=(between,), desired_input_layouts=(whole,)),
        "model.embed_tokens": _Vocabulary(),
        "lm_head": _Head(input_layouts=between, output_layouts=Shard(-1), use_local_output=False),
    }
    return (
        styles
        | {name: ColwiseParallel() for name in into}
        | {name: RowwiseParallel(output_layouts=between) for name in out}
        | {name: _Whole(between) for name in norms}
        # Qwen3's norms act on each head, and a rank has some of the heads.
        | {f"{layer}.self_attn.{name}_norm": _Whole(Shard(2)) for name in "qk"}
        | _styles_of_lora(into, out, between)
    )


def _styles_of_lora(into: set[str], out: set[str], between: Shard | Replicate) -> dict[str, ParallelStyle]:
    """Cut B like the columns of its matrix and A like the rows; the other of both stays whole."""
    base, low, high = ".base_layer", ".lora_A.default", ".lora_B.default"
    wide: dict[str, ParallelStyle] = {f"{name}{part}": ColwiseParallel() for name in into for part in (base, high)}
    return (
        wide
        | {f"{name}{low}": _Whole(Replicate(), local=False) for name in into}
        | {f"{name}{part}": RowwiseParallel(output_layouts=between) for name in out for part in (base, low)}
        | {f"{name}{high}": _Whole(between) for name in out}
    )


class _Head(ColwiseParallel):
    """A head cut by columns, whose output is cut logits, or the loss where it computes that in chunks."""

    @staticmethod
    def _prepare_output_fn(
        output_layouts: Any, use_local_output: bool, mod: nn.Module, outputs: Any, device_mesh: DeviceMesh
    ) -> Any:
        if not isinstance(outputs, DTensor):
            return outputs
        return ColwiseParallel._prepare_output_fn(output_layouts, use_local_output, mod, outputs, device_mesh)


class _Vocabulary(ParallelStyle):
    """An embedding cut by rows, as the head is: a rank looks up the tokens that it holds, and ranks add up the results.

    By torch's own style (2.13) every rank would compute the gradient of the whole embedding.
    """

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> nn.Module:
        module.weight = nn.Parameter(distribute_tensor(module.weight, device_mesh, [Shard(0)]))
        module.forward = lambda ids: _looked_up(module.weight.to_local(), device_mesh, ids)
        made: nn.Module = module
        return made


def _looked_up(rows: torch.Tensor, ranks: DeviceMesh, ids: torch.Tensor) -> torch.Tensor:
    own = ids - ranks.get_local_rank() * len(rows)
    elsewhere = (own < 0) | (own >= len(rows))
    found = nn.functional.embedding(own.masked_fill(elsewhere, 0), rows).masked_fill(elsewhere.unsqueeze(-1), 0)
    return DTensor.from_local(found, ranks, [Partial()], run_check=False).full_tensor()


def _tie(embedding: Any, head: Any, ranks: DeviceMesh) -> None:
    """Let the head take the rows that the embedding has taken.

    Autograd adds up gradients of one tensor in place, those of two DTensors in a third.
    """
    head.weight = embedding.weight
    taken: list[torch.Tensor] = []

    def look_up(ids: torch.Tensor) -> torch.Tensor:
        taken[:] = [embedding.weight.to_local()]
        return _looked_up(taken[0], ranks, ids)

    def project(hidden_states: torch.Tensor) -> torch.Tensor:
        weight = DTensor.from_local(taken.pop(), ranks, [Shard(0)], run_check=False)
        by = head.project if isinstance(head, LossHead) else nn.functional.linear
        made: torch.Tensor = by(hidden_states, weight)
        return made

    embedding.forward, head.forward = look_up, project


class _Whole(SequenceParallel):
    """A module that every rank has whole, as a DTensor, so that all parameters are of one kind."""

    def __init__(self, between: Shard | Replicate, *, local: bool = True) -> None:
        super().__init__(use_local_output=local)
        self.sequence_sharding = (between,)  # type: ignore[assignment]


def fill_parts(module: nn.Module, source: WeightSource, dtype: torch.dtype, device: torch.device) -> None:
    """Give parameters their values, rounded to `dtype`; one whole tensor at a time is on `device`."""
    for name, parameter in building.named_weights(module):
        part: Any = parameter
        values = torch.empty(part.shape, dtype=dtype, device=device)
        source(name, values)
        if not isinstance(part, DTensor):
            part.detach().copy_(values)
            continue
        mesh = part.device_mesh
        everywhere = DTensor.from_local(values, mesh, [Replicate()] * mesh.ndim, run_check=False)
        part.to_local().detach().copy_(everywhere.redistribute(placements=part.placements).to_local())


def settled(parameter: Any) -> torch.Tensor:
    """Return this rank's gradient, after a sum over ranks where each has that of some positions alone."""
    if parameter.grad.placements != parameter.placements:
        parameter.grad = parameter.grad.redistribute(placements=parameter.placements)
    gradient: torch.Tensor = parameter.grad.to_local()
    return gradient
