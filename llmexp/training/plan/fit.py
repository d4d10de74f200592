"""The answer whether a run fits: an estimate of the most that a rank holds, with activations, and how sure it is."""

from __future__ import annotations

from llmexp.inputs.shape import shape_of
from llmexp.machine.memory import host_memory_bytes
from llmexp.record.memory import LIBRARIES, Fit
from llmexp.training.plan.activations import Activations, activations
from llmexp.training.plan.family_activations import activations_of_folder
from llmexp.training.plan.training_plan import TrainingPlan

# What a rank's libraries hold before any tensor. On a GPU: CUDA's context, cuBLAS and NCCL, an allowance. On cpu: the
# writable memory of an interpreter with torch, transformers and deepspeed, 542 MiB by /proc/self/status (VmData).
DEVICE_BASE_BYTES, HOST_BASE_BYTES = 1_500_000_000, 570_000_000
# What a cpu rank's data grows by beyond its libraries and its tensors, mostly stacks of 8 MiB for the threads that it
# starts: 44 to 76 MB in runs of the tiny model on engine=torch and engine=deepspeed (VmData, Naive and R, batch 1).
GROWTH_BASE_BYTES = 70_000_000
# What an allocator may keep besides the tensors, as a share of activations; on GPUs it kept 0 to 10 % of all memory.
# docs/results/verdicts.md shows how little the verdicts on the paper's cells depend on it.
WASTE = 0.3
# Batches are searched by doubling and bisection up to this one.
MOST = 1 << 20


def fit_of(plan: TrainingPlan, micro: int) -> Fit | None:
    """Return how the plan would fit with `micro` sequences a pass; None where its size or its device's is not known."""
    computing, capacity = activations_of(plan, micro), capacity_bytes(plan)
    if plan.memory is None or computing is None or capacity is None:
        return None
    # A cpu rank's tensors are all in one memory, wherever they would lie.
    one_memory = plan.config.hardware.device == "cpu"
    active = computing.peak + computing.on_host * one_memory
    backward = plan.memory.parts_at_backward(with_host=one_memory) | {"activations": active}
    layers = plan.memory.parts_in_backward(with_host=one_memory) | {"activations": computing.first}
    ending = plan.memory.parts_after_backward(with_host=one_memory) | {"activations": computing.last}
    certain = plan.memory.parts_at_update(with_host=one_memory)
    passing = {"gathered": plan.memory.gathered_beside_gradients, "buffers": plan.memory.update_buffers}
    update = certain | passing
    fullest = max(backward, layers, ending, update, key=lambda parts: sum(parts.values()))
    state, need = sum(certain.values()), sum(fullest.values())
    wasted = max(0, sum(backward.values()) + round(WASTE * computing.peak) - need)
    base = _base_bytes(plan)
    parts = {name: size for name, size in fullest.items() if size} | {LIBRARIES: base}
    return Fit(state, need - state + base, capacity, wasted, parts)


def activations_of(plan: TrainingPlan, micro: int) -> Activations | None:
    """Return the activations of a model that is like Llama, or of one that transformers builds of other layers."""
    how, shape = (plan.config, plan.techniques, plan.dims, micro), shape_of(plan.config.model)
    return activations(shape, *how) if shape else activations_of_folder(*how)


def _base_bytes(plan: TrainingPlan) -> int:
    """Return what a rank's libraries hold; a limit counts what a cpu rank's data grows by, and so leaves them out."""
    hardware = plan.config.hardware
    if hardware.device != "cpu":
        return DEVICE_BASE_BYTES
    return GROWTH_BASE_BYTES if hardware.memory_limit_bytes else HOST_BASE_BYTES


def capacity_bytes(plan: TrainingPlan) -> int | None:
    """Return the bytes that one rank may fill: its limit, its device's memory, or on cpu its part of the host's."""
    hardware = plan.config.hardware
    if hardware.memory_limit_bytes:
        return hardware.memory_limit_bytes
    if hardware.device == "cpu":
        # hardware=cpu is the machine that plans, unless a file says what another one has.
        return (hardware.host_memory_bytes or host_memory_bytes()) // plan.ranks_per_node
    return hardware.memory_bytes


def largest_micro(plan: TrainingPlan) -> int | None:
    """Return the largest micro batch that fits, at least 1; None where sizes are not known."""
    if fit_of(plan, 1) is None:
        return None
    low, high = 1, 2
    while high <= MOST and _fits(plan, high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _fits(plan, middle) else (low, middle)
    return low


def _fits(plan: TrainingPlan, micro: int) -> bool:
    fit = fit_of(plan, micro)
    return fit is not None and fit.verdict == "yes"
