"""The stack of a plan: which code, libraries and device would run it here."""

from __future__ import annotations

from importlib.metadata import packages_distributions

from llmexp import outside
from llmexp.engines import get_engine
from llmexp.plan.run_plan import RunPlan
from llmexp.record import environment


def stack_digest(plan: RunPlan) -> str:
    """12 hexadecimal digits that change when worker code, the engine's libraries or the device model do."""
    engine = get_engine(plan.config.engine.name)
    return environment.stack_digest((*engine.distributions, *contributors(plan)), environment.device_model(plan.config.hardware.device))


def contributors(plan: RunPlan) -> list[str]:
    """Distributions of other packages whose code the ranks run: those of the method's atoms, the engine, the optimizer's and the model's class."""
    used = {outside.ATOMS: plan.method.split("+"), outside.ENGINES: [plan.config.engine.name]}
    named = {outside.distribution(point) for group, names in used.items() for name, point in outside.points(group).items() if name in names}
    packages = {target.partition(".")[0] for target in (plan.config.optimizer.target, plan.config.model.target) if target}
    known = packages_distributions() if packages else {}
    return sorted(named.union(*(known.get(package, ()) for package in packages)))
