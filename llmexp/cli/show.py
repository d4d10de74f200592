"""A plan in words: what would run, what each atom changed, the arithmetic of degrees, batch and memory, and why it might not."""

from __future__ import annotations

import json
import shlex
from typing import Any

from llmexp.engines import get_engine
from llmexp.method import Method
from llmexp.plan import bf16
from llmexp.plan.dims import PYTHON
from llmexp.plan.kept import kept_weights
from llmexp.plan.memory import GIB, MemoryEstimate, shortage
from llmexp.plan.run_plan import RunPlan
from llmexp.plan.runtime import Needs, wrap
from llmexp.plan.tokens import TokenBudget


def plan_text(plan: RunPlan) -> str:
    """Several lines for one plan, without the last newline."""
    config = plan.config
    head = f"{config.model.name} {plan.method} on {config.hardware.name}: {config.task.name} by {config.engine.name}, run {plan.id}"
    lines = [head, *(_line(label, line) for label, text in _facts(plan).items() for label, line in _spread(label, text))]
    return "\n".join(lines)


def _facts(plan: RunPlan) -> dict[str, str]:
    config = plan.config
    facts = {
        "skipped": plan.skip or "",
        "atoms": "\n".join(f"{atom.code}: {atom.help} [{_values(atom.sets)}]" for atom in plan.atoms) or "none: nothing is changed",
        "degrees": _degrees(plan),
        "batch": _batch(plan),
        "steps": _steps(plan),
        "precision": bf16.about(config) or f"precision={config.precision.name}",
        "parameters": _parameters(plan),
        "memory": _memory(plan, plan.memory) if plan.memory else "not known before the model is built",
        "weights": f"the checkpoint {config.model.path}" if config.model.weights == "pretrained" else "",
        "leaves": ", ".join(f"repeat.0/{name}" for name in kept_weights(config, Method.parse(plan.method, config.task.name).techniques)),
        "engine": json.dumps(plan.engine_config, indent=2),
        "command": _command(plan),
        "again": plan.rerun_command,
    }
    return {label: text for label, text in facts.items() if text}


def _degrees(plan: RunPlan) -> str:
    dims = plan.dims
    hardware = plan.config.hardware
    node = f"{hardware.devices_per_node} devices a node" + f", {hardware.nodes} nodes" * (hardware.nodes > 1)
    node += f", of which engine.launcher={PYTHON} takes one" * (plan.config.engine.launcher == PYTHON)
    more = {
        f"ep {dims.ep}": True,
        "sequence": dims.sequence,
        f"{dims.virtual_stages} virtual stages": dims.virtual_stages > 1,
        f"schedule {dims.schedule}": dims.schedule is not None,
    }
    return f"{dims.arithmetic} ({node}); {', '.join(name for name, told in more.items() if told)}"


def _batch(plan: RunPlan) -> str:
    batch, seq_len = plan.batch, plan.config.data.seq_len
    samples = f"dp {plan.dims.dp} x micro {batch.micro} x accumulation {batch.accumulation} = {batch.global_} samples a step"
    return f"{samples}; x seq_len {seq_len} = {batch.global_ * seq_len:,} positions"


def _steps(plan: RunPlan) -> str:
    measure = plan.config.measure
    share = measure.stop_at_interval_share
    fewer = f"; fewer of both once tokens/s is known to {share:.2g}" if share else ""
    budget = TokenBudget.of(plan.config, plan.dims)
    arithmetic = f"\n{budget.arithmetic}" if budget else ""
    return f"{measure.warmup_steps} to warm up + {measure.steps} measured, {measure.repeats} times in fresh processes{fewer}{arithmetic}"


def _parameters(plan: RunPlan) -> str:
    if plan.parameters is None or plan.trainable_parameters is None:
        return "not known before the model is built"
    declared = "" if get_engine(plan.config.engine.name).builds_model else "declared: "
    active = f", {plan.active_parameters:,} active for a token" if plan.active_parameters not in (None, plan.parameters) else ""
    return f"{declared}{plan.parameters:,}, of which {plan.trainable_parameters:,} train{active}"


def _memory(plan: RunPlan, memory: MemoryEstimate) -> str:
    """What is certain; activations, buffers and the allocator's waste come on top."""
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
    wrapped = wrap(plan.command.argv, plan.config.runtime, Needs(writes=(str(folder.parent),), gpus=plan.config.hardware.device == "cuda"))
    words = [word.replace("{folder}", str(folder)) for word in wrapped]
    return " ".join([*(f"{key}={shlex.quote(value)}" for key, value in plan.command.env.items()), shlex.join(words)])


def _values(sets: dict[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sets.items())


def _spread(label: str, text: str) -> list[tuple[str, str]]:
    first, *rest = text.splitlines()
    return [(label, first), *(("", line) for line in rest)]


def _line(label: str, text: str) -> str:
    return f"  {label:<11}{text}"
