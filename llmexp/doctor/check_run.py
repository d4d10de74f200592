"""Checks of named runs for `llmexp doctor`: whether each could start here."""

from __future__ import annotations

from collections.abc import Iterator

from llmexp.doctor.check_node import SLURM_COMMANDS, check_slurm
from llmexp.doctor.finding import Finding
from llmexp.launch.compilers import uncompilable
from llmexp.launch.detect import Detected
from llmexp.launch.preflight import certain_skip, missing_libraries, missing_server, other_hardware
from llmexp.record.plan import RunPlan
from llmexp.registry import get_engine


def check_run(plan: RunPlan, node: Detected | None) -> Iterator[Finding]:
    """Check what the run needs against what is installed here.

    `node` is None for a run that will start on SLURM nodes: its job checks hardware and memory when it begins.
    """
    elsewhere, lacking = other_hardware(plan, node) if node else None, missing_libraries(plan)
    yield _hardware(plan, elsewhere, later=node is None)
    yield _engine(plan, lacking)
    if not lacking:
        engine = get_engine(plan.config.task.name, plan.config.engine.name)
        uncompiled = engine.unbuildable(plan) or uncompilable(plan)
        yield Finding("fail" if uncompiled else "ok", "compiler", uncompiled or "the run needs no other one")
    skipped = certain_skip(plan, None if elsewhere else node) or missing_server(plan)
    says = f"would be skipped: {skipped}" if skipped else "is supported, and its memory may be enough"
    yield Finding("warn" if skipped else "ok", "run", f"{plan.config.task.name} {plan.name} {says}")


def _hardware(plan: RunPlan, elsewhere: str | None, *, later: bool) -> Finding:
    taken = f"hardware={plan.config.hardware.name}, {plan.ranks_per_node} ranks on a node"
    return Finding(
        "fail" if elsewhere else "ok", "hardware", elsewhere or (f"{taken}: its job checks that" if later else taken)
    )


def _engine(plan: RunPlan, lacking: str | None) -> Finding:
    config = plan.config
    has = f"runtime={config.runtime.name} has what the ranks of engine={config.engine.name} import"
    return Finding("fail" if lacking else "ok", "engine", lacking or has)


def check_submitting() -> Finding:
    """Check that SLURM's commands are installed, because nothing can be submitted without them."""
    found = check_slurm()
    said = (
        f"hydra/launcher=slurm needs {', '.join(SLURM_COMMANDS)}: "
        "go to the cluster's login node, or load its slurm module"
    )
    return found if found.level == "ok" and "none here" not in found.says else Finding("fail", "slurm", said)
