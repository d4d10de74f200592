"""How many cores a rank wants, and what to say where it has fewer."""

from __future__ import annotations

from llmexp.machine.processor import usable_cores
from llmexp.record.plan import RunPlan

# A rank on a GPU feeds it, moves data, and has threads of NCCL; with O or C it also updates or compiles on the host.
CORES_A_GPU, BUSY_CORES_A_GPU = 8, 16
# Below these a rank's own threads wait for each other.
LEAST_CORES_A_GPU = 2


def cores_of(plan: RunPlan) -> int:
    """Return how many cores one rank wants."""
    threads = plan.config.measure.threads_per_rank or 1
    if plan.config.hardware.device == "cpu":
        return threads
    return max(threads, BUSY_CORES_A_GPU if plan.loads_host or "C" in plan.atom_codes else CORES_A_GPU)


def too_few_cores(plan: RunPlan) -> str:
    """Say that this process, and so the ranks that it starts, may use fewer cores than the ranks want; "" otherwise.

    Ranks on a CPU share what there is.
    """
    ranks, there = plan.ranks_per_node, usable_cores()
    least = BUSY_CORES_A_GPU if plan.loads_host else LEAST_CORES_A_GPU
    if plan.config.hardware.device == "cpu" or there >= ranks * least:
        return ""
    what = "the optimizer's update on the host" if plan.loads_host else "launches and NCCL"
    return (
        f"{ranks} rank{'s' * (ranks > 1)} on GPUs may use {there} core{'s' * (there > 1)} here: {what} will be slower "
        f"than with {ranks * cores_of(plan)} (SLURM: slurm.cpus_per_task, or srun --cpus-per-task)"
    )
