"""What an engine's own library does on a GPU that makes a row slower than another engine's, where that is known."""

from __future__ import annotations

from llmexp.tasks.training.report.row import TrainingRow


def engine_note(row: TrainingRow) -> str:
    """Say by what DeepSpeed's rows fall behind on GPUs; empty for others (docs/engines-and-parallelism.md)."""
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
