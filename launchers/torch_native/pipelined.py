"""Pipelines by torch.distributed.pipelining: this rank's stages, and a schedule of their passes.

Gradients are averaged over the replicas after the schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleMulti, get_schedule_class
from torch.distributed.tensor.parallel import loss_parallel
from transformers import PreTrainedConfig

from llmexp.launchers.models import assembly
from llmexp.launchers.models.chunked_loss import chunks_that_ran
from llmexp.launchers.torch_native.context_parallel import SharedSequences
from llmexp.launchers.torch_native.expert_parallel import add_up, by_kind, settled_gradients
from llmexp.launchers.torch_native.replicated import optimizer
from llmexp.launchers.torch_native.shared_experts import exchanged_tokens, mesh_of_experts
from llmexp.launchers.torch_native.stages import Stage, stages_of_rank
from llmexp.launchers.torch_native.state import TorchState
from llmexp.launchers.torch_native.tensor_parallel import REPLICA, TENSOR, Sharers
from llmexp.launchers.training.optimizer_state import local
from llmexp.measure.batch import MicroBatch
from llmexp.measure.dtypes import torch_dtype
from llmexp.record.what_ran import WhatRan
from llmexp.training.plan.dims import ParallelDims
from llmexp.training.plan.training_plan import TrainingPlan

STAGE = "stage"


class Pipelined:
    """The stages of one rank, and their optimizer."""

    offloads = False
    stage_class: type[Stage] = Stage
    same_experts = REPLICA
    """The axis of the ranks that hold the same experts of a stage."""

    def __init__(self, plan: TrainingPlan, device: torch.device) -> None:
        dims = plan.dims
        self._plan, self._device = plan, device
        self.loss_factor = 1.0
        sizes = self._sizes(dims)
        mesh = init_device_mesh(device.type, tuple(sizes.values()), mesh_dim_names=tuple(sizes))
        self.ranks, self._replicas = mesh.get_group(STAGE), mesh.get_group(REPLICA)
        experts = mesh_of_experts(dims, device, self.same_experts) if dims.ep > 1 else None
        ranks = Sharers(mesh[TENSOR], experts, mesh)
        self._holders = distributed.group.WORLD if experts else _holders(dims) if dims.tp > 1 else self.ranks
        self._shared = SharedSequences(plan, device) if dims.cp > 1 else None
        self._around_loss = loss_parallel if dims.tp > 1 else nullcontext
        of_rank = stages_of_rank(dims, mesh.get_local_rank(STAGE))
        self.stages = [self.stage_class(plan, index, device, ranks, self._shared) for index in of_rank]
        self._tied = self._tie()
        self._ends = _ends(dims) if self.stages[0].is_tied and not dims.v_shaped else None
        self.module: nn.Module = nn.ModuleList(self.stages)
        self.model_class = assembly.class_name(self.stages[0].model)
        self.trained = assembly.trained(self.module)
        self._added = [(self.trained, self._replicas)]
        groups: Any = self.trained
        if experts:
            shared, others = by_kind(self.trained)
            self._added = [(others, self._replicas), (shared, experts.get_group(self.same_experts))]
            groups = [{"params": others}, {"params": shared}]
        self.optimizer = self._optimizer(groups)
        self.schedule = self._schedule()

    @property
    def holders(self) -> distributed.ProcessGroup | None:
        """Return the ranks of one pipeline, which hold parameters, or parts of them, of their own; all with experts."""
        return self._holders

    @property
    def config(self) -> PreTrainedConfig:
        """Return the whole model's configuration."""
        return self.stages[0].model.config

    @property
    def wrapper_class(self) -> str:
        """The name of the class around each stage."""
        return f"{PipelineStage.__module__}.{PipelineStage.__name__}"

    @property
    def reduced_in(self) -> torch.dtype:
        """The dtype of the gradients, which are added up without conversion."""
        return torch_dtype(self._plan.config.precision.gradients)

    @property
    def repeated(self) -> Sequence[nn.Parameter]:
        """The last stage's copy of a tied embedding, which the first stage's rank has too."""
        return [self._tied] if self._tied is not None and self.stages[-1].is_last else []

    def backward(self, passes: Sequence[MicroBatch]) -> torch.Tensor:
        """Compute the gradients of a whole step, averaged over passes and replicas.

        Returns the losses of this replica's passes on every rank.
        """
        losses: list[torch.Tensor] = []
        # Only these two can be the whole pipeline's first and last stage.
        first, last = self.stages[0], self.stages[-1]
        ids = torch.cat([batch.input_ids for batch in passes])
        taken = [self._shared.part(ids) if self._shared else ids] if first.is_first else []
        target = torch.cat([batch.labels for batch in passes]) if last.is_last else None
        with self._around_loss():
            self.schedule.step(*taken, target=target, losses=losses, return_outputs=False)
        self._average()
        return self._of_whole_replica(losses)

    def _sizes(self, dims: ParallelDims) -> dict[str, int]:
        """Return the ranks by axis, in the order of RANK_ORDER; those of a sequence are told apart like replicas."""
        return {STAGE: dims.pp, REPLICA: dims.same_parameters, TENSOR: dims.tp}

    def _optimizer(self, groups: Any) -> torch.optim.Optimizer:
        return optimizer(self._plan, groups, self._replicas)

    def _tie(self) -> nn.Parameter | None:
        """Return the weight of tied embeddings that another rank has too; stages of one rank come to share theirs."""
        held = [(stage, stage.tied) for stage in self.stages if stage.tied is not None]
        if len(held) < 2:
            return held[0][1] if held else None
        (_, embedding), (last, _) = held
        last.take_tied(embedding)
        return None

    def _schedule(self) -> Any:
        options = dict(self._plan.engine_config["schedule"])
        kind = get_schedule_class(options.pop("schedule_name"))
        stages = [self._wrapped(stage) for stage in self.stages]
        of_rank = stages if issubclass(kind, PipelineScheduleMulti) else stages[0]
        return kind(of_rank, self._plan.batch.accumulation, loss_fn=self._share_of_loss, scale_grads=False, **options)

    def _wrapped(self, stage: Stage) -> PipelineStage:
        taken, given = stage.examples(self._plan.batch.micro)
        return PipelineStage(
            stage, stage.index, stage.count, self._device, input_args=taken, output_args=given, group=self.ranks
        )

    @property
    def _shares(self) -> float:
        """The passes on all replicas, over which a step's loss is the mean: losses are divided by their number."""
        return self._plan.batch.accumulation * self._plan.dims.dp

    def _share_of_loss(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return self.stages[-1].loss(logits, labels) / (self._shares / self.loss_factor)

    def _average(self) -> None:
        # DDP cannot do this: a schedule that splits backward passes does not run the hooks in which DDP reduces.
        add_up([(settled_gradients(parameters), group) for parameters, group in self._added])
        self._add_up_tied()

    def _add_up_tied(self) -> None:
        """Give both ends the gradient of a tied embedding that they share."""
        tied: Any = self._tied
        if tied is not None:
            distributed.all_reduce(local(tied.grad), group=self._ends)

    def _of_whole_replica(self, losses: Sequence[torch.Tensor]) -> torch.Tensor:
        known = (
            torch.stack(list(losses)).detach() * (self._shares / self.loss_factor)
            if losses
            else torch.empty(self._plan.batch.accumulation, device=self._device)
        )
        last = 0 if self._plan.dims.v_shaped else self._plan.dims.pp - 1
        distributed.broadcast(known, group=self.ranks, group_src=last)
        return self._shared.add_up(known) if self._shared else known


def _holders(dims: ParallelDims) -> distributed.ProcessGroup:
    """Return the group of this rank's pipeline, whose stages are each cut over neighboring ranks."""
    pipelines: list[list[int]] = [[] for _ in range(dims.same_parameters)]
    for rank in range(dims.world_size):
        pipelines[rank // dims.tp % dims.same_parameters].append(rank)
    own, _ = distributed.new_subgroups_by_enumeration(pipelines)
    assert own is not None
    return own


def _ends(dims: ParallelDims) -> distributed.ProcessGroup | None:
    """Return the group of a pipeline's first and last rank that hold the same parts; None for a rank between them."""
    a_stage = dims.same_parameters * dims.tp
    pairs = [[first, first + dims.world_size - a_stage] for first in range(a_stage)]
    own, _ = distributed.new_subgroups_by_enumeration(pairs)
    return own


class PipelinedTraining(TorchState):
    """A pipeline with the measured loop's one call."""

    layout: Pipelined

    def __init__(self, plan: TrainingPlan, device: torch.device, layout: type[Pipelined] = Pipelined) -> None:
        super().__init__(plan, layout(plan, device))
        self._chunks_loss, self._device = plan.config.kernels.chunked_loss, device
        own = self.trainable_parameters - sum(parameter.numel() for parameter in self.layout.repeated)
        held = torch.tensor(own, device=device)
        distributed.all_reduce(held, group=self.layout.ranks)
        self.trainable_parameters = int(held)

    def train(self, passes: Sequence[MicroBatch], mark: Callable[[str], None]) -> Sequence[torch.Tensor]:
        """Run one step: the schedule, then the update."""
        if self.loss_scale:
            self.layout.loss_factor = self.loss_scale.factor
        losses = self.layout.backward(passes)
        mark("forward_backward")
        self.update()
        mark("optimizer")
        return list(losses)

    def what_ran(self) -> WhatRan:
        """Return what any layout says, the class of the schedule, and the chunks of the last stage's loss."""
        ran: WhatRan = super().what_ran() | {"schedule": assembly.class_name(self.layout.schedule)}
        if self._chunks_loss:
            chunks = torch.tensor(chunks_that_ran(self.module).get("loss_chunks", 0), device=self._device)
            distributed.all_reduce(chunks, op=distributed.ReduceOp.MAX, group=self.layout.ranks)
            ran["loss_chunks"] = int(chunks)
        return ran | exchanged_tokens(self.module)
