"""What makes a row on a GPU slower than it need be, where that is known: an engine's own library, or a small batch."""

from __future__ import annotations

from llmexp.training.report.row import TrainingRow

# An update takes as long for one sequence as for many.
MUCH = 0.3


def update_note(row: TrainingRow) -> str:
    """Say that much of a step on a GPU is the optimizer's update, which a larger batch makes a smaller share."""
    step, update = (row.metric(name) for name in ("step_time_s", "optimizer_time_s"))
    if row.plan.config.hardware.device != "cuda" or not step or not update or update.mean < MUCH * step.mean:
        return ""
    return (
        f"{MUCH:.0%} or more of a step is the optimizer's update, which takes equally long for any batch: a larger "
        "batch.micro or batch.accumulation makes it a smaller share"
    )


def engine_note(row: TrainingRow) -> str:
    """Say by what DeepSpeed's rows fall behind on GPUs; empty for others (docs/results/training.md)."""
    config, stage = row.plan.config, row.plan.techniques.zero_stage
    if config.engine.name != "deepspeed" or config.hardware.device != "cuda" or not row.rate:
        return ""
    if stage == 0 and config.precision.master != config.precision.parameters:
        return (
            f"DeepSpeed without Z in {config.precision.name} makes the host wait for the GPU at every tensor's "
            "gradient; engine=torch never does"
        )
    overlaps = config.engine.options.get("zero_optimization", {}).get("overlap_comm", False)
    if stage in (1, 2) and row.plan.dims.dp > 1 and not overlaps:
        return (
            f"DeepSpeed's Z{stage} reduces gradients after backward, not beside it as engine=torch and megatron do: "
            "+engine.options.zero_optimization.overlap_comm=true changes that"
        )
    return ""
