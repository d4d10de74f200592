"""A plan in words: what would run and why it might not, each atom's changes, degrees, batch and memory."""

from __future__ import annotations

import json
import shlex

from llmexp.plan.memory import GIB, shortage
from llmexp.plan.runtime import Needs, wrap
from llmexp.record.plan import MemoryEstimate, RunPlan
from llmexp.tasks import get_task


def plan_text(plan: RunPlan) -> str:
    """Return several lines for one plan, without the last newline."""
    config = plan.config
    head = f"{plan.name} on {config.hardware.name}: {config.task.name} by {config.engine.name}, run {plan.id}"
    lines = [
        head,
        *(_line(label, line) for label, text in _facts(plan).items() for label, line in _spread(label, text)),
    ]
    return "\n".join(lines)


def _facts(plan: RunPlan) -> dict[str, str]:
    facts = {
        "skipped": plan.skip or "",
        **get_task(plan.config.task.name).describe(plan),
        **({"memory": _memory(plan, plan.memory)} if plan.memory else {}),
        "engine": json.dumps(plan.engine_config, indent=2),
        "command": _command(plan),
        "again": plan.rerun_command,
    }
    return {label: text for label, text in facts.items() if text}


def _memory(plan: RunPlan, memory: MemoryEstimate) -> str:
    """Describe the memory that is certain; activations, buffers and the allocator's waste come on top."""
    hardware = plan.config.hardware
    device = f"{memory.device / GIB:.4g} GiB on the device{_of(hardware.memory_bytes)}"
    host = f"{memory.host / GIB:.4g} GiB on the host, x {plan.ranks_per_node} ranks{_of(hardware.host_memory_bytes)}"
    ranks = plan.ranks_per_node
    lack = shortage(memory, ranks, hardware.memory_bytes, hardware.host_memory_bytes)
    verdict = f"\nit cannot fit, so it would be skipped (force=true tries): {lack}" if lack else ""
    return f"a rank holds for certain {device} and {host}; activations come on top\n{memory.arithmetic}{verdict}"


def _of(size: int | None) -> str:
    return f" of {size / GIB:.4g}" if size else ""


def _command(plan: RunPlan) -> str:
    folder = plan.folder / "repeat.0"
    wrapped = wrap(
        plan.command.argv,
        plan.config.runtime,
        Needs(writes=(str(folder.parent),), gpus=plan.config.hardware.device == "cuda"),
    )
    words = [word.replace("{folder}", str(folder)) for word in wrapped]
    return " ".join([*(f"{key}={shlex.quote(value)}" for key, value in plan.command.env.items()), shlex.join(words)])


def _spread(label: str, text: str) -> list[tuple[str, str]]:
    first, *rest = text.splitlines()
    return [(label, first), *(("", line) for line in rest)]


def _line(label: str, text: str) -> str:
    return f"  {label:<11}{text}"
