"""A training plan in words: what each atom changed, and the arithmetic of degrees, batch, steps and parameters."""

from __future__ import annotations

from typing import Any

from llmexp.machine import bf16, processor
from llmexp.schema.run import PYTHON
from llmexp.tasks.base import source_words
from llmexp.training.config import TrainingConfig
from llmexp.training.config.run import FIT_TRIES, BatchConfig
from llmexp.training.plan.artifacts import kept_weights
from llmexp.training.plan.degrees import DEGREES
from llmexp.training.plan.fit import largest_micro
from llmexp.training.plan.known_shapes import option_like
from llmexp.training.plan.tokens import TokenBudget
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.planning import training_engine
from llmexp.training.predict import unpredicted
from llmexp.training.predict.sensitivity import sensitivity_words

UNBUILT = "not known before the model is built"


def describe(plan: TrainingPlan) -> dict[str, str]:
    """Return the plan's facts as lines by label; an empty line has nothing to say."""
    config = plan.config
    return {
        "atoms": "\n".join(f"{atom.code}: {atom.help} [{_values(atom.sets)}]" for atom in plan.atoms)
        or "none: nothing is changed",
        "degrees": _degrees(plan),
        "batch": _batch(plan),
        "steps": _steps(plan),
        "precision": precision_note(config) or f"precision={config.precision.name}",
        "parameters": _parameters(plan),
        "layers": plan.layers,
        "flops": _flops(plan),
        "prediction": "" if plan.predicted or plan.skip else f"none: {unpredicted(plan)}",
        "what if": sensitivity_words(plan),
        "memory": _unbuilt(plan, "memory") + _known_elsewhere(plan),
        "source": source_words(config),
        "weights": _weights(config),
        "leaves": ", ".join(f"repeat.0/{name}" for name in kept_weights(config, plan.techniques)),
    }


def _weights(config: TrainingConfig) -> str:
    checkpoint = None if config.starts_from else config.model.checkpoint
    return f"the checkpoint {checkpoint.path}" if checkpoint else ""


def precision_note(config: TrainingConfig) -> str:
    """Say in one line what precision=auto chose, or what 16 bits cost on hardware without instructions for them.

    Return "" where neither applies.
    """
    precision = config.precision
    if precision.chosen_because:
        return f"precision=auto is {precision.name}: {precision.chosen_because}"
    if precision.scales_loss and config.hardware.device == "cpu" and not processor.multiplies_fp16():
        return (
            f"precision={precision.name}: this processor has no fp16 instructions "
            f"({', '.join(processor.FP16_OF_X86)} or ARM's {processor.FP16_OF_ARM[0]}); matrix products take longer "
            "than with precision=fp32"
        )
    lack = bf16.lacks(config.hardware.model_dump()) if precision.parameters == "bf16" else ""
    on_cpu = config.hardware.device == "cpu"
    slower = bf16.slower_on_cpu() if on_cpu else "matrix products take longer than with precision=fp32"
    return f"precision={precision.name}: {lack}; {slower}" if lack else ""


def _unbuilt(plan: TrainingPlan, what: str) -> str:
    return f"{UNBUILT}: {plan.uncounted[what]}" if what in plan.uncounted else UNBUILT


def _flops(plan: TrainingPlan) -> str:
    """Say a token's FLOPs where nothing else tells them: of a model whose layers are said."""
    if plan.layers and plan.flops_per_token:
        return f"{plan.flops_per_token:.4g} for a token, forward and backward"
    return f"unknown: {plan.uncounted['flops']}" if "flops" in plan.uncounted else ""


def _known_elsewhere(plan: TrainingPlan) -> str:
    """Name the model that has the checkpoint's shape, by its name, and so tells what is not known here."""
    checkpoint = plan.config.model.checkpoint
    option = option_like(checkpoint.path) if checkpoint else None
    return f"; a plan of model={option}, which has this shape by its name, says whether it fits" if option else ""


def _degrees(plan: TrainingPlan) -> str:
    dims = plan.dims
    hardware = plan.config.hardware
    node = f"{hardware.devices_per_node} devices a node" + f", {hardware.nodes} nodes" * (hardware.nodes > 1)
    node += f", of which engine.launcher={PYTHON} takes one" * (plan.config.engine.launcher == PYTHON)
    more = {
        **{f"{name} {size}": True for name, size in dims.degrees.items() if not DEGREES[name].has_ranks},
        "sequence": dims.sequence,
        f"{dims.virtual_stages} virtual stages": dims.virtual_stages > 1,
        f"schedule {dims.schedule}": dims.schedule is not None,
    }
    return f"{dims.arithmetic} ({node}); {', '.join(name for name, told in more.items() if told)}"


def _batch(plan: TrainingPlan) -> str:
    batch, seq_len = plan.batch, plan.config.data.seq_len
    samples = (
        f"dp {plan.dims.dp} x micro {batch.micro} x accumulation {batch.accumulation} = {batch.global_} samples a step"
    )
    if not plan.settled:
        return _search(plan.config.batch, largest_micro(plan))
    return f"{samples}; x seq_len {seq_len} = {batch.global_ * seq_len:,} positions"


def _search(asked: BatchConfig, expected: int | None) -> str:
    only = "powers of 2" if asked.search == "pow2" else "to the sample"
    to = f" up to {asked.largest}" if asked.largest else ""
    arithmetic = f"; {expected} by the formula of activations" if expected else ""
    times = f"it has to fit {asked.fits} of {FIT_TRIES} times"
    return f"the largest micro that fits{to}, {only}, by short runs; {times}{arithmetic}"


def _steps(plan: TrainingPlan) -> str:
    measure = plan.config.measure
    share = measure.stop_at_interval_share
    fewer = f"; fewer of both once tokens/s is known to {share:.2g}" if share else ""
    budget = TokenBudget.of(plan.config, plan.dims)
    arithmetic = f"\n{budget.arithmetic}" if budget else ""
    often = f"{measure.repeats} times" if measure.repeats > 1 else "once"
    often += ", in turns with the sweep's other runs," if measure.repeats > 1 and plan.config.is_interleaved else ""
    measured = f"as many as take {measure.duration_s:g} s" if measure.duration_s else f"{measure.steps} measured"
    steps = f"{measure.warmup_steps} to warm up + {measured}"
    return f"{steps}, {often} in fresh processes{fewer}{arithmetic}"


def _parameters(plan: TrainingPlan) -> str:
    if plan.parameters is None:
        return _unbuilt(plan, "parameters")
    declared = "" if training_engine(plan.config).builds_model else "declared: "
    active = (
        f", {plan.active_parameters:,} active for a token"
        if plan.active_parameters not in (None, plan.parameters)
        else ""
    )
    trained = f"of which {plan.trainable_parameters:,} train" if plan.trainable_parameters else "which train: unknown"
    if plan.techniques.adapter and plan.trainable_parameters:
        trained = f"all frozen, and {plan.trainable_parameters:,} more of the adapter, which train"
    return f"{declared}{plan.parameters:,}, {trained}{active}"


def _values(sets: dict[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sets.items())
