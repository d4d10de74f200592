"""The limits of tensor parallelism with engine=torch, as the reason of a skip."""

from __future__ import annotations

from llmexp.method import Method, Techniques
from llmexp.schema import SizedModel
from llmexp.training.config import TrainingConfig
from llmexp.training.plan.dims import ParallelDims

ARCHITECTURES = ("llama",)
METHODS = ("F", "R", "RS", "Z2", "Z3")


def uncut(config: TrainingConfig, techniques: Techniques, dims: ParallelDims) -> str | None:
    """Say what parallelism.tp has not been shown to work with; None where it has, or where nothing is cut."""
    if dims.tp == 1:
        return None
    model, known = config.model, isinstance(config.model, SizedModel) and not config.model.target
    atoms = [atom.code for atom in Method.parse(config.method, config.task.name).atoms]
    beyond = [code for code in atoms if code not in METHODS]
    why = {
        f"it cuts models of architecture {', '.join(ARCHITECTURES)}, not model={model.name} ({model.architecture})": (
            not known or model.architecture not in ARCHITECTURES
        ),
        "it cuts the embedding by columns and the head by rows: set model.tie_embeddings=false": (
            isinstance(model, SizedModel) and model.tie_embeddings
        ),
        f"it does not divide model.hidden_size={getattr(model, 'hidden_size', 0)}": bool(
            getattr(model, "hidden_size", 0) % dims.tp
        ),
        f"it goes with parallelism.dp, not with parallelism.pp={dims.pp}: set parallelism.pp=1": dims.pp > 1,
        f"it goes with {', '.join(METHODS)}, not with {', '.join(beyond)}": bool(beyond),
    } | untried(config)
    reason = next((reason for reason, holds in why.items() if holds), None)
    return f"engine=torch with parallelism.tp={dims.tp}: {reason}" if reason else None


def untried(config: TrainingConfig) -> dict[str, bool]:
    """Return what cut matrices and cut sequences have not been tried with, as reasons, and whether it is asked for."""
    reason = f"it has been tried with optimizer=adamw and sgd, not with {config.optimizer.name}"
    return {reason: config.optimizer.targets not in ((), ("torch.optim.SGD",))} | _untried_keys(config)


def _untried_keys(config: TrainingConfig) -> dict[str, bool]:
    asked = {
        f"precision.linears={config.precision.linears}": config.precision.linears is not None,
        "precision.parameters=fp16": config.precision.parameters == "fp16",
        "kernels.liger=true": config.kernels.liger,
        "memory.activation_offload=true": config.memory.activation_offload,
        "data.seq_len_schedule": bool(config.data.seq_len_schedule),
        "data.pack=true with data=instructions": config.data.isolates,
    }
    return {f"it has not been tried with {key}: leave that out": is_asked for key, is_asked in asked.items()}
