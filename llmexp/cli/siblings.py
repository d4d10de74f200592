"""What the runs beside one in its sweep already say of it."""

from __future__ import annotations

from contextlib import suppress

from llmexp.engines.resolve import resolve
from llmexp.errors import RecordError
from llmexp.plan.run_plan import RunPlan
from llmexp.record.folder import RunFolder
from llmexp.record.result import RunStatus


def with_memory_of_siblings(plan: RunPlan, folder: RunFolder, stack: str) -> RunPlan:
    """The plan, skipped where the same run with a smaller batch.micro has run out of memory on this stack; force=true starts it all the same."""
    tried = [] if plan.config.force else [micro for micro in _out_of_memory(plan, folder, stack) if micro < plan.batch.micro]
    if not tried:
        return plan
    return plan.model_copy(update={"skip": plan.skip or f"out of memory already at batch.micro={min(tried)}; force=true starts it all the same"})


def _out_of_memory(plan: RunPlan, folder: RunFolder, stack: str) -> list[int]:
    """batch.micro of the runs of the same model and method in the sweep's folder that differ in nothing else and ended so."""
    found = []
    for path in sorted(folder.path.parent.glob(f"{plan.config.model.name}_{plan.method}_*")):
        sibling = RunFolder(path)
        with suppress(RecordError):  # of another version: it says nothing of this run
            result = sibling.result()
            if result and (result.status, result.stack) == (RunStatus.OOM, stack) and _differs_in_batch_alone(RunPlan.read(sibling.plan_path), plan):
                found.append(result.batch.micro)
    return found


def _differs_in_batch_alone(sibling: RunPlan, plan: RunPlan) -> bool:
    batch = sibling.config.batch.model_copy(update={"micro": plan.config.batch.micro})
    return resolve(sibling.config.model_copy(update={"batch": batch})).id == plan.id
