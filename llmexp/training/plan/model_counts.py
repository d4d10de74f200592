"""What a plan counts of its model: parameters, FLOPs and training state, or why it does not."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

from llmexp.inputs.architecture.fields import UncountedError
from llmexp.inputs.architecture.model import Architecture
from llmexp.inputs.architecture.reading import architecture_of
from llmexp.inputs.shape import ModelShape
from llmexp.method import Techniques
from llmexp.record.flops import Flops
from llmexp.record.memory import MemoryEstimate
from llmexp.training.config import TrainingConfig
from llmexp.training.plan.dims import ParallelDims
from llmexp.training.plan.family_activations import unknown_activations
from llmexp.training.plan.flops import computed_flops, flops_of, recomputed_flops_per_token
from llmexp.training.plan.memory import Storage, estimate
from llmexp.training.plan.seq_len_schedule import LengthSchedule
from llmexp.training.plan.share import Share, shares_of
from llmexp.training.plan.trained import Trained, flops_per_token


@dataclass(frozen=True)
class CountedRun:
    """What the counts depend on besides the model."""

    config: TrainingConfig
    techniques: Techniques
    dims: ParallelDims
    storage: Storage
    moments: float | None
    """The bytes of an optimizer's moments for each trained parameter."""
    builds_model: bool
    recomputes_whole: bool


@dataclass(frozen=True)
class ModelCounts:
    """The fields of a `TrainingPlan` that are counted from the model alone."""

    parameters: int | None = None
    trainable_parameters: int | None = None
    active_parameters: int | None = None
    flops_per_token: float | None = None
    recomputed_flops_per_token: float | None = None
    flops: Flops | None = None
    memory: MemoryEstimate | None = None
    layers: str = ""
    uncounted: dict[str, str] = field(default_factory=dict)

    @property
    def in_plan(self) -> dict[str, Any]:
        """The fields by name."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


def uncounted(reason: str) -> ModelCounts:
    """Say why nothing of a model is known."""
    return ModelCounts(uncounted=dict.fromkeys(("parameters", "memory"), reason))


def counts_of_shape(shape: ModelShape, run: CountedRun) -> ModelCounts:
    """Count a model that is like Llama."""
    config, techniques = run.config, run.techniques
    built, how = shape if run.builds_model else None, (config, techniques, run.dims)
    trained = Trained.of(shape, techniques, config.adapter)
    held = trained.of_rank(shape, config.adapter, run.dims)
    said = [share.words for share in shares_of(techniques) if share.words]
    whole = run.recomputes_whole
    return ModelCounts(
        parameters=shape.parameters,
        trainable_parameters=trained.trainable,
        active_parameters=shape.active_parameters,
        flops_per_token=flops_per_token(shape, LengthSchedule.of(config).of_mean_token, techniques, config.adapter),
        recomputed_flops_per_token=recomputed_flops_per_token(built, *how, whole=whole) if built else None,
        flops=flops_of(shape, config, techniques, computed_flops(built, *how, whole=whole) if built else None),
        memory=estimate(built, run.storage, held, run.dims, said) if built and run.moments is not None else None,
    )


def counts_of_other(run: CountedRun) -> ModelCounts:
    """Count a transformers model by its kinds of layers; where they are not known, only say why."""
    try:
        made = architecture_of(run.config.model)
    except UncountedError as error:
        return uncounted(str(error))
    counts = ModelCounts(parameters=made.parameters, active_parameters=made.active_parameters, layers=made.words)
    if frozen := _freezes(run.techniques):
        return replace(counts, uncounted=dict.fromkeys(("flops", "memory"), frozen))
    lacks = {"flops": _unequal_windows(made, run.config), "memory": _uncut(made, run)}
    known: dict[str, Any] = {} if lacks["flops"] else _flops(made, run)
    if not lacks["memory"] and run.builds_model:
        known["memory"] = _memory(made, run)
    reasons = {what: reason for what, reason in lacks.items() if reason}
    return replace(counts, trainable_parameters=made.parameters, uncounted=reasons, **known)


def _flops(made: Architecture, run: CountedRun) -> dict[str, Any]:
    """Return the model's FLOPs; those that devices compute are not known, and recomputation adds none without R."""
    seq_len = LengthSchedule.of(run.config).of_mean_token
    again = run.techniques.recomputation or run.techniques.attention_recomputation or not run.builds_model
    return {
        "flops_per_token": made.flops_per_token(seq_len),
        "recomputed_flops_per_token": None if again else 0.0,
        "flops": Flops(
            per_position=3 * made.forward_flops_per_position,
            attention_per_square=3 * made.attention_flops(seq_len) / seq_len,
            seq_len=seq_len,
            whole_per_square=None if made.attends_all(seq_len) else 3 * made.flops_per_key,
        ),
    }


def _memory(made: Architecture, run: CountedRun) -> MemoryEstimate:
    said = [share.words for share in shares_of(run.techniques) if share.words]
    if unknown := unknown_activations(made, run.config, run.techniques, run.dims):
        said += [f"activations come on top, and are not known for {unknown}"]
    return estimate(made, run.storage, Trained(made.parameters), run.dims, said)


def _freezes(techniques: Techniques) -> str:
    """Say which atoms change what trains, because their shares count the matrices of Llama-like layers."""
    changes = any(type(share).trained is not Share.trained for share in shares_of(techniques))
    return "the method freezes or adds parameters, which llmexp counts in Llama-like layers only" if changes else ""


def _unequal_windows(made: Architecture, config: TrainingConfig) -> str:
    """Say why FLOPs are not known: within windows they do not grow with the squared lengths that a run counts."""
    data = config.data
    lengths = [data.seq_len, *(data.seq_len_schedule or ())]
    varies = data.pads or data.isolates or data.seq_len_schedule
    if not varies or made.attends_all(max(lengths)):
        return ""
    return f"attention has windows shorter than data.seq_len={data.seq_len}, and sequences differ in length"


def _uncut(made: Architecture, run: CountedRun) -> str:
    """Say why the state is not known: degrees that cut a model, and moments of factored optimizers."""
    matrices, layers = run.dims.cutting("matrices"), run.dims.cutting("layers")
    if (matrices and not made.cuts_evenly) or (layers and len(made.kinds) > 1):
        degrees = ", ".join(f"{name} {size}" for name, size in (matrices | layers).items())
        counts = "cuts Llama-like layers" if matrices and not made.cuts_evenly else "counts stages of equal layers"
        return f"{degrees} cuts the model, and llmexp {counts} only"
    return "" if run.moments is not None else f"the states of optimizer={run.config.optimizer.name} are unknown"
