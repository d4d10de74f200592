"""Traced memory as a table, beside the formula by which a plan says whether it fits."""

from __future__ import annotations

from collections.abc import Sequence

from llmexp.record.digits import GIB
from llmexp.training.plan.activations import Activations
from llmexp.training.plan.fit import activations_of
from llmexp.training.plan.traced_memory import PARTS, Moment, TracedMemory
from llmexp.training.plan.training_plan import TrainingPlan

WORDS: dict[Moment, str] = {"forward_end": "forward ends", "passes": "most in passes", "update": "most in update"}
GAP = "  "


def traced_table(plan: TrainingPlan, traced: TracedMemory) -> str:
    """Return the second step's moments, a line each, then the first step's peak and the activations a token."""
    by_formula = activations_of(plan, plan.batch.micro)
    step = traced.steps[1]
    rows = [["GiB", *PARTS, "all", "formula"]]
    fullest = max(WORDS, key=lambda moment: getattr(step, moment).together)
    for moment, words in WORDS.items():
        found, formula = getattr(step, moment), _formula(plan, by_formula, moment, fullest)
        parts = [_gib(getattr(found, part)) for part in PARTS]
        rows.append([words, *parts, _gib(found.together), formula])
    return "\n".join([_head(plan, traced), *_aligned(rows), *_notes(plan, traced, by_formula)])


def _head(plan: TrainingPlan, traced: TracedMemory) -> str:
    batch, config = plan.batch, plan.config
    ranks = f"rank 0 of {plan.dims.world_size}" if plan.dims.world_size > 1 else "one rank"
    return (
        f"{plan.name} by {config.engine.name}: {ranks}, {batch.micro} x {config.data.seq_len} tokens a pass; "
        f"step 2, traced by torch {traced.torch} in {traced.time_s:.0f} s"
    )


def _notes(plan: TrainingPlan, traced: TracedMemory, by_formula: Activations | None) -> list[str]:
    first, kept = traced.steps[0].peak, traced.steps[1].forward_end.activations
    tokens = plan.batch.micro * plan.config.data.seq_len
    formula = f"; the formula says {by_formula.kept / tokens:.0f}" if by_formula else ""
    return [
        f"step 1: {_gib(first.together)} GiB at most",
        f"activations: {kept / tokens:.0f} bytes a token{formula}",
        "engine: gathered parameters and buckets; neither the allocator's waste nor CUDA's context is traced",
    ]


def _formula(plan: TrainingPlan, by_formula: Activations | None, moment: Moment, fullest: Moment) -> str:
    """Return what the plan counts for the end of forward, and for the fullest moment; nothing for the third one."""
    memory = plan.memory
    if moment == "forward_end" != fullest:
        return _gib(memory.before_backward + by_formula.kept) if memory and by_formula else "unknown"
    if moment != fullest:
        return ""
    if memory is None or by_formula is None:
        return "unknown"
    return _gib(max(memory.device + memory.update_buffers, memory.before_backward + by_formula.peak))


def _gib(size: int) -> str:
    return f"{size / GIB:.2f}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        [row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))] for row in rows
    ]
    return [GAP.join(line) for line in lines]
