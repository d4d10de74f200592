"""Runs in the same sweep that already ran out of memory with a smaller batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from llmexp.errors import RecordError
from llmexp.record.folder import RunFolder
from llmexp.record.result import RunStatus
from llmexp.tasks.resolve import resolve
from llmexp.training.plan.training_plan import TrainingPlan


def out_of_memory_already(plan: TrainingPlan, sweep: Path, stack: str) -> str | None:
    """Say that the same run with a smaller batch.micro ran out of memory on this stack, or return None.

    force=true starts the run all the same.
    """
    tried = (
        [] if plan.config.force else [micro for micro in _out_of_memory(plan, sweep, stack) if micro < plan.batch.micro]
    )
    return f"out of memory already at batch.micro={min(tried)}; force=true starts it all the same" if tried else None


def _out_of_memory(plan: TrainingPlan, sweep: Path, stack: str) -> Iterator[int]:
    """Yield batch.micro of the runs of the sweep that ran out of memory and differ from this plan in nothing else."""
    for path in sorted(sweep.glob(f"{'_'.join(plan.subject.values())}_*")):
        sibling = RunFolder(path)
        with suppress(RecordError):  # written by another version, which says nothing of this run
            result = sibling.result()
            if not result or not result.batch or (result.status, result.stack) != (RunStatus.OOM, stack):
                continue
            if _differs_in_batch_alone(TrainingPlan.read(sibling.plan_path), plan):
                yield result.batch.micro


def _differs_in_batch_alone(sibling: TrainingPlan, plan: TrainingPlan) -> bool:
    batch = plan.config.batch.model_copy(update={"accumulation": sibling.config.batch.accumulation})
    return resolve(sibling.config.model_copy(update={"batch": batch})).id == plan.id
