"""The stack of a plan: the code, libraries and device that would run it here."""

from __future__ import annotations

from llmexp.launch.runtime import Runtime, contributors
from llmexp.launch.worker_sources import worker_sources
from llmexp.record import environment
from llmexp.record.plan import RunPlan
from llmexp.registry import get_engine


def stack_digest(plan: RunPlan, device: str | None = None) -> str:
    """Return 12 hexadecimal digits that identify the stack.

    They change with the code that the plan's worker can import, the engine's libraries or the device model (None: this
    node's).
    """
    names = (*get_engine(plan.config.task.name, plan.config.engine.name).distributions, *contributors(plan))
    installed = Runtime(plan).installed.distributions
    versions = {name: installed[name] for name in names if name in installed}
    return environment.stack_digest(
        worker_sources(tuple(plan.command.argv)),
        versions,
        device or environment.device_model(plan.config.hardware.device),
    )
