"""A row beside the paper's cell of the same work: the cell, the ratio, and notes on either."""

from __future__ import annotations

from llmexp.paper.printed import (
    DTYPE,
    ENGINE,
    LORA_RANK,
    LORA_TARGETS,
    OPTIMIZER,
    SEQ_LEN,
    WORLD_SIZE,
    PaperCell,
    PaperScaling,
    paper_cell,
    paper_largest,
    paper_scaling,
)
from llmexp.report.ratio import RateRatio
from llmexp.schema.section import MAX
from llmexp.training.report.row import TrainingRow

# The paper's pre-training runs share these: task, sequence length, accumulation, and no layout but data parallelism.
_SHARED = ("pretrain", SEQ_LEN, 1, "")


def cell_of(row: TrainingRow) -> PaperCell | None:
    """Return the paper's cell of the same work, or None.

    Engine, method, model, hardware, samples per GPU, GPUs, passes and sequence length must be the same. A run that
    searched its largest batch has the cell of table IV, whatever batch was the largest there.
    """
    found = _of_same_batch(row)
    rank = row.plan.config.adapter.rank
    here = (row.comparison_key["task"], row.seq_len, row.batch.accumulation, row.layout, row.processes, rank)
    is_same = found and not row.comparison_key["data"] and here == (found.task, *_SHARED[1:], WORLD_SIZE, LORA_RANK)
    return found if is_same else None


def _of_same_batch(row: TrainingRow) -> PaperCell | None:
    names = (row.model, row.method, row.hardware)
    if row.plan.config.batch.micro == MAX:
        return paper_largest(*names) if row.comparison_key["engine"] == ENGINE else None
    return paper_cell(*names, row.batch.micro, row.comparison_key["engine"])


def settings_unlike(row: TrainingRow) -> list[str]:
    """Return the settings that the paper's cell was measured without, as far as it says so or its memory shows it.

    With any of them there is no ratio to the paper.
    """
    config, precision = row.plan.config, row.plan.config.precision
    states = {precision.parameters, precision.gradients, precision.master, precision.moments}
    differences = {
        f"precision={precision.name}": states != {DTYPE} or precision.linears is not None or precision.qat is not None,
        f"optimizer={config.optimizer.name}": config.optimizer.name != OPTIMIZER,
        f"adapter.targets={','.join(config.adapter.targets)}": config.task.name == "finetune"
        and config.adapter.targets != LORA_TARGETS,
        "kernels.liger": config.kernels.liger,
        "kernels.fused_accumulation": config.kernels.fused_accumulation,
        "kernels.fused_projections": config.kernels.fused_projections,
        "kernels.chunked_loss": config.kernels.chunked_loss,
        f"kernels.flash={config.kernels.flash}": config.kernels.flash != "auto",
        "memory.activation_offload": config.memory.activation_offload,
        "memory.keep": config.memory.keep,
        "memory.recompute_layers": config.memory.recompute_layers,
        "memory.optimizer_folder": config.memory.optimizer_folder,
    }
    return [word for word, differs in differences.items() if differs]


def over_paper(row: TrainingRow) -> RateRatio | None:
    """Return tokens/s over the paper's; None where either is missing or the paper measured something else."""
    cell = cell_of(row)
    is_fair = row.rate and cell and cell.tokens_per_s and not settings_unlike(row)
    return RateRatio(row, cell.tokens_per_s) if is_fair and cell and cell.tokens_per_s else None


def memory_over_paper(row: TrainingRow) -> float | None:
    """Return peak allocated bytes over the paper's peak, or None.

    It is None where only the training state is known, or where the paper measured something else.
    """
    peak, cell = row.metric("peak_allocated_bytes"), cell_of(row)
    known = peak and cell and cell.memory_bytes and not settings_unlike(row)
    return peak.mean / cell.memory_bytes if known and peak and cell and cell.memory_bytes else None


def cell_note(row: TrainingRow) -> str:
    """Return what is doubtful or odd in the paper's cell."""
    cell = cell_of(row)
    return f"paper, table {cell.table}: {cell.remark}" if cell and cell.remark else ""


def unlike_note(row: TrainingRow) -> str:
    """Say why a measured run has no ratio to the paper's cell."""
    cell = cell_of(row)
    unlike = settings_unlike(row) if cell and not cell.oom and row.rate else []
    return f"no ratio: the paper's cell is not of {', '.join(unlike)}" if unlike else ""


def scaling_of(row: TrainingRow) -> PaperScaling | None:
    """Return the paper's figure for this number of GPUs, which is of weak scaling with DeepSpeed."""
    own = (row.comparison_key["task"], row.seq_len, row.batch.accumulation, row.layout)
    if own != _SHARED or row.comparison_key["engine"] != ENGINE:
        return None
    return paper_scaling(row.model, row.method, row.hardware, row.batch.micro, row.processes)


def scaling_note(row: TrainingRow) -> str:
    """Return what the paper says of its own scaling figure."""
    found = scaling_of(row)
    return f"paper, figure 4: {found.note}" if found and found.note else ""
