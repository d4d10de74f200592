"""The limits of tensor and context parallelism with engine=torch, as the reason of a skip."""

from __future__ import annotations

from llmexp.inputs.architecture.fields import UncountedError
from llmexp.inputs.architecture.reading import architecture_of
from llmexp.inputs.shape import architecture_name, shape_of
from llmexp.launchers.attention.sequence_limits import dropped_scores, unshared_sequences
from llmexp.method import Method, Techniques
from llmexp.schema import ModelConfig
from llmexp.training.config import TrainingConfig
from llmexp.training.limits import compiled_limit, own_code
from llmexp.training.plan.dims import ParallelDims
from llmexp.training.plan.float8 import MX

ARCHITECTURES = {"tp": ("llama", "mistral", "qwen3"), "cp": ("llama", "qwen3", "mixtral", "qwen3_moe", "deepseek_v3")}
# Of models whose experts are shared out tp cuts all other matrices.
CUT_WITH_EXPERTS = ("mixtral", "qwen3_moe")
# Models with experts that are not like Llama, whose biases, where they have some, are of attention.
NOT_LIKE_LLAMA = ("qwen3_moe", "deepseek_v3")
METHODS = {"tp": ("C", "F", "R", "RS", "Z1", "Z2", "Z3", "L"), "cp": ("F", "R", "RS", "Z1", "Z2", "Z3", "O", "L")}


def uncut(config: TrainingConfig, techniques: Techniques, dims: ParallelDims) -> str | None:
    """Say what parallelism.tp or parallelism.cp has not been shown to work with; None where it has, or at 1."""
    for name in METHODS:
        if dims.degrees[name] == 1:
            continue
        own = (_matrices if name == "tp" else _sequences)(config, techniques, dims)
        why = _beyond(config, name, shares=dims.ep > 1) | own | untried(config, fp8=name == "tp")
        if reason := next((reason for reason, holds in why.items() if holds), None):
            return (
                compiled_limit(techniques, dims)
                or f"engine=torch with parallelism.{name}={dims.degrees[name]}: {reason}"
            )
    return None


def _beyond(config: TrainingConfig, degree: str, *, shares: bool) -> dict[str, bool]:
    """Return the reasons that the model and the method give, and whether each holds; ranks may share out experts."""
    model, methods = config.model, METHODS[degree]
    architectures = ARCHITECTURES[degree] + CUT_WITH_EXPERTS * (degree == "tp" and shares)
    name = architecture_name(model)
    counted = shape_of(model) is not None or (name in NOT_LIKE_LLAMA and (degree != "tp" or _cuts_evenly(model)))
    atoms = [atom.code for atom in Method.parse(config.method, config.task.name).atoms]
    beyond = [code for code in atoms if code not in methods]
    taken = f"it takes models of architecture {', '.join(architectures)}"
    shared = ": set parallelism.ep, parallelism.etp=1 and parallelism.sequence=true"
    instead = shared * (degree == "tp" and name in CUT_WITH_EXPERTS)
    return own_code(model) | {
        f"{taken}, not model={model.name} ({name}){instead}": name not in architectures or bool(model.target),
        f"{taken} without biases, and config.json of model={model.name} has some, or no architectures": not counted,
        f"it goes with {', '.join(methods)}, not with {', '.join(beyond)}": bool(beyond),
    }


def _cuts_evenly(model: ModelConfig) -> bool:
    """Tell whether the matrices of a model with experts are cut as Llama's are; False where they are not known."""
    try:
        return architecture_of(model).cuts_evenly
    except UncountedError:
        return False


def _matrices(config: TrainingConfig, techniques: Techniques, dims: ParallelDims) -> dict[str, bool]:
    dropout, adapts = config.adapter.dropout, techniques.adapter is not None
    return dropped_scores(config.model) | {
        f"its ranks would drop different inputs by adapter.dropout={dropout}: set it to 0": adapts and dropout > 0,
    }


def _sequences(config: TrainingConfig, techniques: Techniques, dims: ParallelDims) -> dict[str, bool]:
    saved = "RS has nothing to save, as a ring keeps no scores: leave RS out, or set parallelism.cp_kind=ulysses"
    return unshared_sequences(config.model, config.data.seq_len) | {
        saved: techniques.attention_recomputation and dims.cp_kind == "ring"
    }


def untried(config: TrainingConfig, *, fp8: bool = False) -> dict[str, bool]:
    """Return what cut matrices, sequences and experts have not been tried with, and whether it is asked for.

    With `fp8`, products in fp8 have been tried, but for those of blocks that share a scale.
    """
    optimizer, precision = config.optimizer, config.precision
    linears = f"precision.scaling={MX}" if fp8 else f"precision.linears={precision.linears}"
    asked = {
        linears: precision.linears is not None and (not fp8 or precision.scaling == MX),
        f"precision.qat={precision.qat}": precision.qat is not None,
        "precision.parameters=fp16": precision.parameters == "fp16",
        "kernels.liger=true": config.kernels.liger,
        "memory.activation_offload=true": config.memory.activation_offload,
        "data.seq_len_schedule": bool(config.data.seq_len_schedule),
        "data.pack=true with data=instructions": config.data.isolates,
    }
    return {
        f"it has been tried with optimizer=adamw and sgd, not with {optimizer.name}": (
            optimizer.targets not in ((), ("torch.optim.SGD",))
        )
    } | {f"it has not been tried with {key}: leave that out": is_asked for key, is_asked in asked.items()}
