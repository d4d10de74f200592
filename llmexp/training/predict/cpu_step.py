"""The time of a step on a processor: nothing runs beside anything else there, so its parts add up."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from llmexp.dtypes import bytes_of
from llmexp.inputs.shape import ModelShape, shape_of
from llmexp.training.plan.trained import Trained
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.predict.calibration import COMMUNICATION, COMPUTING, HOST, LAUNCHES, UPDATE, Multipliers
from llmexp.training.predict.cpu_rates import CpuRates
from llmexp.training.predict.schedule import StepTime

_ATOMS = frozenset(("F", "R", "C", "Z1", "Z2", "Z3", "O", "Q", "L", "QL"))


@dataclass(frozen=True)
class CpuConstants:
    """What no microbenchmark tells, fitted to runs; `python -m benchmarks.prediction.on_cpu` says to which."""

    elementwise: float
    """Elementwise work of a layer in forward, in RMSNorms of its hidden states."""
    backward_elementwise: float
    """The same in backward."""
    attention: float
    """Attention in a layer over attention alone."""
    loss: float
    """The loss and its gradient, in forward cross-entropies."""
    layer_calls: float
    """A decoder layer's calls in forward, without their work, as calls that do hardly any."""
    backward_calls: float
    """Calls of backward over those of forward."""
    recomputing: float
    """A layer's forward by R over its first one: it keeps random states and runs under autograd."""
    adapter_calls: float
    """Calls of a layer with adapters over those without."""
    adapter_elementwise: float
    """Elementwise work of a layer with adapters over that without."""
    update_layer_calls: float
    """The engine's calls of a layer's tensors in the update, as such calls."""
    update: float
    """The whole update over AdamW alone: copies, norms and casts are in it."""
    reducing: float
    """Gradients' reduction over the collective alone."""
    sharded_layer_calls: float
    """ZeRO's calls for each layer, as such calls."""
    gathering_layer_calls: float
    """Z3's calls for each layer, forward and backward together, as such calls."""
    gathers: float
    """Gathers of a layer by Z3 in a step, as collectives' calls."""
    host_update: float
    """The update by O over AdamW alone."""


@cache
def constants() -> CpuConstants:
    """Return the fitted constants."""
    text = (files(__package__) / "cpu_constants.yaml").read_text(encoding="utf-8")
    found: dict[str, float] = yaml.safe_load(text)
    return CpuConstants(**{field.name: found[field.name] for field in fields(CpuConstants)})


def unknown_on_cpu(plan: TrainingPlan) -> str:
    """Say in a few words what of a plan is not predicted on a processor; empty where all is."""
    config, shape = plan.config, shape_of(plan.config.model)
    cut = next((name for name, degree in plan.dims.degrees.items() if degree > 1 and name != "dp"), "")
    atom = next((code for code in plan.atom_codes if code not in _ATOMS), "")
    reasons = {
        f"model={config.model.name}": shape is None or shape.num_experts,
        f"parallelism.{cut}": cut,
        "hardware.nodes": config.hardware.nodes > 1,
        f"engine={config.engine.name}": config.engine.name not in ("deepspeed", "torch"),
        f"atom {atom}": atom,
        f"optimizer={config.optimizer.name}": config.optimizer.kinds != ("AdamW",),
        "kernels.liger": config.kernels.liger,
        "kernels.fused_accumulation": config.kernels.fused_accumulation,
        "kernels.chunked_loss": config.kernels.chunked_loss,
        "kernels.fused_projections": config.kernels.fused_projections,
        "memory.activation_offload": config.memory.activation_offload,
        "memory.keep": config.memory.keep,
        "memory.recompute_layers": config.memory.recompute_layers,
    }
    found = next((what for what, is_so in reasons.items() if is_so), "")
    return f"on a processor {found} is not predicted" if found else ""


def cpu_step(plan: TrainingPlan, rates: CpuRates, known: CpuConstants, multipliers: Multipliers) -> StepTime:
    """Return the seconds of a step by phase; terms of a class take the multiple of it."""
    shape = shape_of(plan.config.model)
    assert shape is not None
    trained = Trained.of(shape, plan.techniques, plan.config.adapter)
    computing = multipliers.get(COMPUTING, 1.0)
    calls = multipliers.get(LAUNCHES, 1.0) * rates.call_s * _calls(plan, shape, known)
    products, elements, loss, kind = _work(plan, shape, rates, known)
    scores = float(plan.batch.micro * shape.num_layers * shape.num_heads * plan.config.data.seq_len**2)
    ahead, behind = (known.attention * scores * rates.scores_s[f"{kind}_{way}"] for way in ("forward", "backward"))
    forward = computing * (products + known.elementwise * elements + ahead) + calls
    backward = computing * (
        products * (2 if trained.matrices_train else 1) + known.backward_elementwise * elements + behind + loss
    )
    backward += calls * known.backward_calls
    passes, again = plan.batch.accumulation, float(plan.techniques.recomputation)
    update, host = _update(plan, shape, trained.trainable, rates, known)
    return StepTime(
        forward=forward * passes,
        again=forward * known.recomputing * again * passes,
        backward=backward * passes,
        exposed=multipliers.get(COMMUNICATION, 1.0) * _exposed(plan, shape, trained.trainable, rates, known),
        optimizer=multipliers.get(UPDATE, 1.0) * update,
        host=multipliers.get(HOST, 1.0) * host,
    )


def _calls(plan: TrainingPlan, shape: ModelShape, known: CpuConstants) -> float:
    # Embedding, final norm and loss call about as much as one more layer.
    return (shape.num_layers + 1) * known.layer_calls * (known.adapter_calls if plan.techniques.adapter else 1.0)


def _work(plan: TrainingPlan, shape: ModelShape, rates: CpuRates, known: CpuConstants) -> tuple[float, Any, Any, str]:
    """Return the seconds of products, of RMSNorms over all layers, and of the loss, and the kind of attention."""
    tokens = float(plan.batch.micro * plan.config.data.seq_len)
    multiplied = shape.active_linear_parameters + shape.vocab_size * shape.hidden_size
    adapted = known.adapter_elementwise if plan.techniques.adapter else 1.0
    elements = tokens * shape.hidden_size * shape.num_layers * rates.element_s * adapted
    loss = known.loss * tokens * shape.vocab_size * rates.logit_s
    return (
        2 * tokens * multiplied * rates.flop_s,
        elements,
        loss,
        "flash" if plan.techniques.flash_attention else "unfused",
    )


def _update(
    plan: TrainingPlan, shape: ModelShape, trainable: float, rates: CpuRates, known: CpuConstants
) -> tuple[float, float]:
    """Return the seconds of the update, as the device's and as the host's: one of them is 0."""
    shared = trainable / (plan.dims.dp if plan.techniques.zero_stage else 1) * rates.updated_s
    calls = shape.num_layers * known.update_layer_calls * rates.call_s
    if plan.techniques.offload_optimizer:
        return 0.0, shared * known.host_update + calls
    return shared * known.update + calls, 0.0


def _exposed(plan: TrainingPlan, shape: ModelShape, trainable: float, rates: CpuRates, known: CpuConstants) -> float:
    """Return the seconds of communication; the calls of ZeRO's stages are there with one rank too."""
    stage, passes = plan.techniques.zero_stage, (2 + plan.techniques.recomputation) * plan.batch.accumulation
    calls = known.sharded_layer_calls * bool(stage) + known.gathering_layer_calls * passes / 2 * (stage == 3)
    calls *= rates.call_s
    if plan.dims.dp == 1:
        return shape.num_layers * calls
    width = float(bytes_of(plan.config.precision.parameters))
    reduce, gather = rates.collectives["all_reduce"], rates.collectives["all_gather"]
    sent = known.reducing * reduce.time_s(trainable * width)
    if stage in (1, 2):
        sent += gather.time_s(trainable * width)
    if stage == 3:
        sent += gather.time_s(passes * shape.parameters * width, known.gathers * shape.num_layers * passes / 2)
    return sent + shape.num_layers * calls
