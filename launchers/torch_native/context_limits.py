"""The limits of context parallelism with engine=torch, as the reason of a skip."""

from __future__ import annotations

from llmexp.launchers.torch_native.tensor_limits import untried
from llmexp.method import Method, Techniques
from llmexp.schema import SizedModel
from llmexp.training.config import TrainingConfig
from llmexp.training.limits import compiled_limit
from llmexp.training.plan.dims import ParallelDims

ARCHITECTURES = ("llama", "qwen3", "mixtral")
METHODS = ("F", "R", "RS", "Z1", "Z2", "Z3", "O", "L")


def unshared_sequences(config: TrainingConfig, techniques: Techniques, dims: ParallelDims) -> str | None:
    """Say what parallelism.cp has not been shown to work with; None where it has, or where no sequence is shared."""
    if dims.cp == 1:
        return None
    model, known = config.model, isinstance(config.model, SizedModel) and not config.model.target
    beyond = [code for code in _codes(config) if code not in METHODS]
    whole = next((name for name in ("tp", "pp") if dims.degrees[name] > 1), "")
    why = {
        f"it takes models of architecture {', '.join(ARCHITECTURES)}, not model={model.name} ({model.architecture})": (
            not known or model.architecture not in ARCHITECTURES
        ),
        f"it goes with parallelism.dp, not with parallelism.{whole}={dims.degrees.get(whole)}: set parallelism.{whole}"
        "=1": bool(whole),
        f"it has not been tried with parallelism.shard={dims.shard}: leave that out": dims.shard is not None,
        f"it goes with {', '.join(METHODS)}, not with {', '.join(beyond)}": bool(beyond),
        "RS has nothing to save, as a ring keeps no scores: leave RS out, or set parallelism.cp_kind=ulysses": (
            techniques.attention_recomputation and dims.cp_kind == "ring"
        ),
    } | untried(config)
    reason = next((reason for reason, holds in why.items() if holds), None)
    told = f"engine=torch with parallelism.cp={dims.cp}: {reason}" if reason else None
    return compiled_limit(techniques, dims) or told


def _codes(config: TrainingConfig) -> list[str]:
    return [atom.code for atom in Method.parse(config.method, config.task.name).atoms]
