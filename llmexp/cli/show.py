"""A plan in words: whether it fits and how fast it would be, then what would run."""

from __future__ import annotations

import json
import shlex

from llmexp.cli.plan_answer import answer, fit_of_plan
from llmexp.launch.command_prefix import Needs, wrap
from llmexp.record.digits import GIB
from llmexp.record.memory import Fit, MemoryEstimate
from llmexp.record.plan import RunPlan
from llmexp.registry import get_task
from llmexp.sweep.cost import Cost

MORE = "--verbose shows all that this run would do, its memory by part and its command"


def plan_text(cost: Cost, *, verbose: bool = False, budget: str = "", failures: str = "", stages: str = "") -> str:
    """Return one plan as lines, the answer first, without the last newline.

    They are about five. With `verbose` they are everything that the plan knows, down to the engine's configuration and
    the command. `budget` is the cost of a training budget, `failures` what they make of it, and `stages` the
    speed of unequal ones.
    """
    plan = cost.plan
    config = plan.config
    head = f"{plan.name} on {config.hardware.name}: {config.task.name} by {config.engine.name}, run {plan.id}"
    answers = answer(cost) | {"training": budget, "failures": failures, "stages": stages}
    facts = answers | (_facts(plan) | _native(plan) if verbose else _brief(plan, answers))
    told = {label: text for label, text in facts.items() if text}
    return "\n".join(
        [head, *(_line(label, line) for name, text in told.items() for label, line in _spread(name, text))]
    )


def _brief(plan: RunPlan, answers: dict[str, str]) -> dict[str, str]:
    """Return what is measured, and the memory where nothing else tells whether it fits."""
    facts = _facts(plan)
    unanswered = [] if answers["fits"] or answers["skipped"] else ["memory"]
    shown = [*unanswered, *(get_task(plan.config.task.name).brief or facts)]
    return {label: facts.get(label, "").partition("\n")[0] for label in shown} | {"more": MORE}


def _facts(plan: RunPlan) -> dict[str, str]:
    return get_task(plan.config.task.name).describe(plan) | (
        {"memory": _memory(plan, plan.memory)} if plan.memory else {}
    )


def _native(plan: RunPlan) -> dict[str, str]:
    engine = json.dumps(plan.engine_config, indent=2)
    return {"engine": engine, "command": _command(plan), "again": plan.rerun_command}


def _memory(plan: RunPlan, memory: MemoryEstimate) -> str:
    """Describe the memory that is certain, which is what a run is skipped for."""
    hardware = plan.config.hardware
    device = f"{memory.device / GIB:.4g} GiB on the device{_of(hardware.memory_bytes)}"
    host = f"{memory.host / GIB:.4g} GiB on the host, x {plan.ranks_per_node} ranks{_of(hardware.host_memory_bytes)}"
    ranks = plan.ranks_per_node
    lack = memory.shortage(ranks, hardware.memory_bytes, hardware.host_memory_bytes)
    verdict = "\nit cannot fit, so it would be skipped (force=true tries it)" if lack else ""
    return f"a rank holds for certain {device} and {host}\n{memory.arithmetic}{verdict}{_parts(fit_of_plan(plan))}"


def _parts(fit: Fit | None) -> str:
    """Return what a rank needs at its fullest moment, by part."""
    if fit is None or not fit.parts:
        return ""
    parts = " + ".join(f"{name} {size / GIB:.3g}" for name, size in fit.parts.items())
    return f"\nat the fullest moment {fit.need / GIB:.3g} GiB: {parts}"


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
