"""The stack of a plan: which code, libraries and device would run it here."""

from __future__ import annotations

from llmexp.engines import get_engine
from llmexp.plan.run_plan import RunPlan
from llmexp.record import environment


def stack_digest(plan: RunPlan) -> str:
    """12 hexadecimal digits that change when worker code, the engine's libraries or the device model do."""
    engine = get_engine(plan.config.engine.name)
    return environment.stack_digest(engine.distributions, environment.device_model(plan.config.hardware.device))
