"""A pipeline whose stages FSDP2 shards: each decoder layer is a unit, and the rest of a stage another.

Experts that ranks share are a unit of their layer.

Gradients are partitioned in every pass. Torch's schedules (2.13) know FSDP2 and would keep whole ones to the end of a
step, and parameters gathered: so they are not shown it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage
from transformers import PreTrainedModel

from llmexp.launchers.models import assembly, building
from llmexp.launchers.models.compiled import decoder_layers
from llmexp.launchers.models.weights import WeightSource
from llmexp.launchers.torch_native.fully_sharded import SHARD, shard_experts, unit_options
from llmexp.launchers.torch_native.pipelined import STAGE, Pipelined
from llmexp.launchers.torch_native.shared_experts import EXPERT, losses_of, share_experts
from llmexp.launchers.torch_native.stages import Stage
from llmexp.launchers.torch_native.tensor_parallel import REPLICA, TENSOR, cut_matrices, fill_parts
from llmexp.measure.dtypes import torch_dtype
from llmexp.training.plan.dims import ParallelDims
from llmexp.training.plan.training_plan import TrainingPlan


class ShardedStage(Stage):
    """A stage of which this rank holds its part of every parameter."""

    def begin_backward(self, *, last: bool) -> None:
        """Keep what forward leaves gathered for other passes, until the `last` one of a step."""
        stage: Any = self
        stage.set_reshard_after_backward(last, recurse=self._layers_stay)

    def _fill(self, cut: PreTrainedModel, source: WeightSource, plan: TrainingPlan, device: torch.device) -> None:
        precision = plan.config.precision
        made = building.ExactBuffers(cut)
        cut.to(torch_dtype(precision.master))
        made.restore(device)
        self.model = assembly.with_atoms(cut, plan, has_head=self.is_last)
        if plan.dims.tp > 1:
            cut_matrices(self.model, self._ranks.matrices, along_sequence=plan.dims.sequence)
        if self._ranks.experts is not None:
            share_experts(self.model, self._ranks.experts[EXPERT], losses_of(plan.dims))
        buffers = building.ExactBuffers(self.model)
        self._shard(plan)
        self.model.to_empty(device=device)
        buffers.restore(device)
        fill_parts(self.model, source, torch_dtype(precision.parameters), device)
        assembly.compile_atom(self.model, assembly.method_of(plan), cut=plan.dims.tp > 1)

    def _shard(self, plan: TrainingPlan) -> None:
        axes = (REPLICA, SHARD) if plan.dims.sharers < plan.dims.same_parameters else (SHARD,)
        assert self._ranks.by_axis is not None
        options = unit_options(plan, self._ranks.by_axis[axes])
        self._layers_stay = not options["reshard_after_forward"]
        for layer in decoder_layers(self.model):
            if self._ranks.experts is not None:
                shard_experts(layer, self._ranks.experts[SHARD], options)
            fully_shard(layer, **options)
        fully_shard(self, **options | {"reshard_after_forward": False})


class _Unseen(nn.Module):
    """A stage that a schedule does not take for a module of FSDP2."""

    def __init__(self, stage: ShardedStage) -> None:
        super().__init__()
        self.stage = stage

    def forward(self, received: torch.Tensor) -> torch.Tensor:
        """Compute what the stage computes."""
        given: torch.Tensor = self.stage(received)
        return given


class _ShardedPipelineStage(PipelineStage):
    """A stage that is told which backward pass is the last of a step."""

    def backward_maybe_with_nosync(
        self, backward_type: str, bwd_kwargs: dict[str, Any], last_backward: bool = False
    ) -> tuple[tuple[torch.Tensor | None, ...], list[dict[str, Any]] | None]:
        self.submod.stage.begin_backward(last=last_backward)  # type: ignore[operator, union-attr]
        return super().backward_maybe_with_nosync(backward_type, bwd_kwargs, last_backward)


class ShardedPipeline(Pipelined):
    """The parts of one rank's stages, and their optimizer."""

    stage_class = ShardedStage
    same_experts = SHARD

    @property
    def holders(self) -> distributed.ProcessGroup:
        """Return all ranks: they hold different parameters, or parts of them."""
        world = distributed.group.WORLD
        assert world is not None
        return world

    @property
    def wrapper_class(self) -> str:
        """The name of the class that FSDP2 makes of a stage."""
        return assembly.class_name(self.stages[0])

    @property
    def reduced_in(self) -> torch.dtype:
        """The dtype of the reduce-scatter."""
        return torch_dtype(self._plan.engine_config["mixed_precision"]["reduce_dtype"])

    @property
    def _shares(self) -> float:
        """Fewer than the passes on all replicas: FSDP2 averages over the ranks that hold the same part."""
        return super()._shares / self._plan.dims.same_parameters

    def _sizes(self, dims: ParallelDims) -> dict[str, int]:
        sizes = super()._sizes(dims)
        replicas = {REPLICA: dims.same_parameters // dims.sharers, SHARD: dims.sharers}
        return {STAGE: sizes[STAGE], **replicas, TENSOR: sizes[TENSOR]}

    def _optimizer(self, groups: Any) -> torch.optim.Optimizer:
        return assembly.optimizer(self._plan, groups)

    def _wrapped(self, stage: Stage) -> PipelineStage:
        taken, given = stage.examples(self._plan.batch.micro)
        assert isinstance(stage, ShardedStage)
        return _ShardedPipelineStage(
            _Unseen(stage),
            stage.index,
            stage.count,
            self._device,
            input_args=taken,
            output_args=given,
            group=self.ranks,
        )

    def _average(self) -> None:
        self._add_up_tied()
