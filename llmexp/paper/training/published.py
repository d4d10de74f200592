"""The speed that the paper printed for the planned run, or for one like it."""

from __future__ import annotations

from llmexp.paper.printed import LORA_RANK, SEQ_LEN, WORLD_SIZE, PaperCell, paper_batches, paper_cell
from llmexp.record.plan import RunPlan
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.predict.changed import changed_numbers


def published_rate(plan: RunPlan) -> float | None:
    """Return the tokens/s of the paper's cell of this very run; None also where the paper ran out of memory.

    Batch, GPUs, passes, sequence length and the adapter's rank have to be the paper's.
    """
    if not isinstance(plan, TrainingPlan) or changed_numbers(plan.config.hardware):
        return None
    config, batch = plan.config, plan.batch
    cell = paper_cell(config.model.name, plan.method, config.hardware.name, batch.micro, config.engine.name)
    rank = config.adapter.rank if plan.techniques.adapter else LORA_RANK
    here = (config.task.name, plan.processes, config.data.seq_len, batch.accumulation, rank)
    return cell.tokens_per_s if cell and here == (cell.task, WORLD_SIZE, SEQ_LEN, 1, LORA_RANK) else None


def published_speed(plan: RunPlan) -> tuple[float, str] | None:
    """Return the tokens/s a GPU of the paper's cell with the nearest batch, and the words that name the cell.

    Only model, method, hardware and engine have to be the plan's; the words say what else the cell had. Hardware with
    another peak or bandwidth is another.
    """
    if not isinstance(plan, TrainingPlan) or changed_numbers(plan.config.hardware):
        return None
    config = plan.config
    found = paper_batches(config.model.name, plan.method, config.hardware.name, config.engine.name)
    cells = [cell for cell in found if cell.task == config.task.name and cell.tokens_per_s]
    if not cells:
        return None
    nearest = min(cells, key=lambda cell: (_apart(cell, plan), cell.batch_micro))
    words = f"the paper's cell on {WORLD_SIZE} x {config.hardware.name} (table {nearest.table}, {_settings(nearest)})"
    return (nearest.tokens_per_s or 0.0) / WORLD_SIZE, words + ", which is doubtful" * nearest.doubtful


def _apart(cell: PaperCell, plan: TrainingPlan) -> float:
    return max(cell.batch_micro / plan.batch.micro, plan.batch.micro / cell.batch_micro)


def _settings(cell: PaperCell) -> str:
    return f"batch {cell.batch_micro}, {SEQ_LEN} tokens"
