"""The training state of a rank as bytes over links and parameters to update, by how ranks share it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from llmexp.dtypes import bytes_of
from llmexp.training.plan.float8 import MEGATRON, TORCH
from llmexp.training.plan.trained import Trained
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.predict.layers import Layers


@dataclass(frozen=True)
class State:
    """What a rank sends of its gradients and parameters in one go, and what is updated where."""

    reduced_bytes: float
    gathered_bytes: float
    copied_bytes: float
    """Gradients of its shard that a rank sends to the copies of it."""
    added_bytes: float
    """What a pass reads and writes to add its gradients to those before."""
    updated: float
    """Parameters that a rank updates."""
    on_host: float
    """Parameters that a node's processors update."""


@dataclass(frozen=True)
class _Held:
    """Parameters that a rank holds: those of all ranks with the same part of the model, and routed experts."""

    common: float
    experts: float
    ranks: int
    """Ranks that share out the same common parameters."""
    expert_ranks: int

    @property
    def all(self) -> float:
        """All parameters that a rank holds."""
        return self.common + self.experts

    @property
    def sent(self) -> float:
        """The parameters that a rank sends where all of them are reduced, or gathered, once."""
        return self.common * (self.ranks - 1) / self.ranks + self.experts * (self.expert_ranks - 1) / self.expert_ranks

    @property
    def shared_out(self) -> float:
        """A rank's share where the ranks that hold the same share them out."""
        return self.common / self.ranks + self.experts / self.expert_ranks


def state_of(plan: TrainingPlan, layers: Layers, trained: Trained) -> State:
    """Return the state of a rank of a plan."""
    techniques, precision, dims = plan.techniques, plan.config.precision, plan.dims
    whole = _held(plan, layers)
    trains = whole if not trained.frozen + trained.four_bit else _Held(trained.trainable, 0.0, whole.ranks, 1)
    gathered = _gathered(plan, whole, layers) if techniques.zero_stage == 3 else trains
    nodes = max(1, dims.world_size // plan.config.hardware.devices_per_node)
    return State(
        reduced_bytes=bytes_of(precision.gradients) * trains.sent,
        gathered_bytes=bytes_of(precision.parameters) * gathered.sent,
        copied_bytes=bytes_of(precision.gradients) * 2 * (1 - dims.sharers / dims.same_parameters) * trains.shared_out,
        added_bytes=_added(plan) * (trains.shared_out if techniques.zero_stage >= 2 else trains.all),
        updated=trains.shared_out if techniques.zero_stage else trains.all,
        on_host=trained.trainable / nodes if techniques.offload_optimizer else 0.0,
    )


def _added(plan: TrainingPlan) -> float:
    """Return the bytes of an element in a pass: its gradient is read, and the sum read and written.

    Products may add to the sum instead, and offloaded sums are on the host. Megatron adds the gradients of the first
    pass too, to zeros; FSDP2 adds in the dtype that it updates.
    """
    config, passes = plan.config, plan.batch.accumulation
    if config.kernels.fused_accumulation or plan.techniques.offload_optimizer:
        return 0.0
    adding = 1.0 if config.engine.name == MEGATRON else (passes - 1) / passes
    shards = config.engine.name == TORCH and plan.techniques.zero_stage >= 2
    total = config.precision.master if shards else config.precision.gradients
    return adding * (bytes_of(config.precision.parameters) + 2.0 * bytes_of(total))


def _gathered(plan: TrainingPlan, whole: _Held, layers: Layers) -> _Held:
    """Return what Z3 gathers for a forward pass, half of what it does for a pass.

    FSDP2 keeps what is outside of the layers until backward has used it, and a stage keeps it for a step.
    """
    if plan.config.engine.name != TORCH:
        return whole
    ends = layers.counted.ends_of_rank(plan.dims.rank_part)
    gathers = 1.0 if plan.dims.pp == 1 else 1 / plan.batch.accumulation
    return replace(whole, common=whole.common - ends * (1 - gathers / 2))


def _held(plan: TrainingPlan, layers: Layers) -> _Held:
    """Return what the fullest rank holds; a model that is not like Llama may share out its experts, no more."""
    dims, shape = plan.dims, layers.counted
    if not dims.cutting("matrices", "layers", "experts"):
        return _Held(float(layers.parameters), 0.0, dims.sharers, 1)
    experts, held = shape.expert_parameters_of_rank(dims.rank_part), shape.parameters_of_rank(dims.rank_part)
    return _Held(float(held - experts), float(experts), dims.sharers, dims.same_experts)
