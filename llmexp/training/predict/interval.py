"""Intervals from the errors that predictions made of runs that were held out (split conformal prediction).

The quantiles of these errors are carried with the constants, by group. A run takes the first of its groups that has
held-out runs: the more a run differs from what was fitted, the wider. Where these are few, the ends hold the next
group's too.
"""

from __future__ import annotations

from llmexp.record.predicted import ENOUGH_HELD_OUT
from llmexp.training.config import AdamW
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.predict.layers import layers_of
from llmexp.training.predict.rates import FITTED, constants

EXPERTS, CUT = "runs with experts", "runs with tensor, context or pipeline parallelism"
NODES, ONE_NODE = "runs on several nodes", "runs on one node"
PUBLISHED = (EXPERTS, CUT, NODES, ONE_NODE)
_NOT_PUBLISHED = ("RS", "P")


def groups_of(plan: TrainingPlan, source: str) -> list[str]:
    """Name the groups of runs whose errors are like those of a plan, the nearest first; the last always has runs."""
    if source == FITTED and _is_like_fitted(plan):
        return [fitted_group(plan.config.task.name)]
    parent = other_group(offloads=plan.techniques.offload_optimizer)
    return [parent] if plan.techniques.offload_optimizer or _shares_the_host(plan) else [kind_of(plan), parent]


def fitted_group(task: str) -> str:
    """Name the runs of a task on hardware whose runs were fitted."""
    return f"{task} on fitted hardware"


def other_group(*, offloads: bool) -> str:
    """Name the runs on hardware that was left out of the fit."""
    return f"other hardware, {'with' if offloads else 'without'} offload"


def kind_of(plan: TrainingPlan) -> str:
    """Name the kind of published runs that a plan belongs to: by what is hardest to predict of it."""
    kinds = {
        EXPERTS: layers_of(plan.config.model).experts,
        CUT: plan.dims.cutting("matrices", "layers", "sequence"),
        NODES: plan.dims.world_size > plan.config.hardware.devices_per_node,
    }
    return next((kind for kind, is_so in kinds.items() if is_so), ONE_NODE)


def interval_of(groups: list[str]) -> tuple[float, float, int]:
    """Return the ends of the 90 % interval as shares of a prediction, and the number of held-out runs behind."""
    known = constants()["intervals"]
    nearest, *wider = [known[group] for group in groups if group in known]
    low, high, runs = nearest
    if runs < ENOUGH_HELD_OUT and wider:
        low, high = min(low, wider[0][0]), max(high, wider[0][1])
    return low, high, runs


def widest_of(groups: list[str]) -> tuple[float, float, int]:
    """Return the ends that hold the intervals of all these groups, for runs whose like were never held out."""
    known = constants()["intervals"]
    lows, highs, _ = zip(*(known[group] for group in groups if group in known), strict=True)
    return min(lows), max(highs), 0


def _is_like_fitted(plan: TrainingPlan) -> bool:
    """Tell whether runs of this kind are among those that constants are fitted to, or nearly."""
    config = plan.config
    differs = (
        kind_of(plan) != ONE_NODE
        or config.engine.name == "megatron"
        or config.precision.parameters != "bf16"
        or not isinstance(config.optimizer, AdamW)
        or config.kernels.liger
        or config.kernels.fused_accumulation
        or config.kernels.chunked_loss
        or config.kernels.fused_projections
        or config.memory.activation_offload
        or config.memory.keep
        or set(plan.atom_codes) & set(_NOT_PUBLISHED)
    )
    return not differs


def _shares_the_host(plan: TrainingPlan) -> bool:
    """Tell whether ranks communicate over PCIe, which published runs hardly do."""
    bandwidth = plan.config.hardware.interconnect_bandwidth_bytes_per_s or 0.0
    return plan.dims.world_size > 1 and bandwidth < constants()["links"]["switched_from"]
