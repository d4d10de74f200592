"""The limits of expert parallelism with engine=torch, as the reason of a skip."""

from __future__ import annotations

from llmexp.inputs.architecture.reading import architecture_of
from llmexp.inputs.hf_config import config_of
from llmexp.inputs.shape import architecture_name
from llmexp.launchers.torch_native.cut_limits import CUT_WITH_EXPERTS, untried
from llmexp.method import Method
from llmexp.schema import SizedModel
from llmexp.training.config import TrainingConfig
from llmexp.training.limits import own_code
from llmexp.training.plan.dims import ParallelDims

ARCHITECTURES = ("mixtral", "qwen3_moe", "deepseek_v3")
METHODS = ("F", "R", "RS", "Z2", "Z3")


def unshared_experts(config: TrainingConfig, dims: ParallelDims) -> str | None:
    """Say what parallelism.ep has not been shown to work with; None where it has, or where no expert is elsewhere."""
    if dims.ep == 1:
        return None
    model, name = config.model, architecture_name(config.model)
    known = name in ARCHITECTURES and not model.target
    atoms = [atom.code for atom in Method.parse(config.method, config.task.name).atoms]
    beyond = [code for code in atoms if code not in METHODS]
    takes = f"it takes models of architecture {', '.join(ARCHITECTURES)}, not model={model.name} ({name})"
    tp, whole = f"parallelism.tp={dims.tp}", "parallelism.etp=1"
    said = {} if isinstance(model, SizedModel) else config_of(model) or {}
    why = {
        takes: not known,
        f"with {tp} it takes models of architecture {', '.join(CUT_WITH_EXPERTS)}, not model={model.name} ({name})": (
            dims.tp > 1 and name not in CUT_WITH_EXPERTS
        ),
        f"ranks hold whole experts, and {tp} would cut them: set {whole}": dims.expert_tensor > 1,
        f"with {tp} a rank sends its part of each sequence: set parallelism.sequence=true": (
            dims.tp > 1 and not dims.sequence
        ),
        "output_router_logits of config.json balances experts over whole sequences: set it to false": (
            dims.tp > 1 and bool(said.get("output_router_logits"))
        ),
        f"it has not been tried with parallelism.shard={dims.shard}: leave that out": dims.shard is not None,
        f"it goes with {', '.join(METHODS)}, not with {', '.join(beyond)}": bool(beyond),
        f"it has not been tried with memory.keep={config.memory.keep}: leave that out": config.memory.keep is not None,
    }
    why = own_code(model) | why | untried(config)
    reason = next((reason for reason, holds in why.items() if holds), None) or _uneven(config, dims)
    return f"engine=torch with parallelism.ep={dims.ep}: {reason}" if reason else None


def _uneven(config: TrainingConfig, dims: ParallelDims) -> str | None:
    """Say that a rank would not have as many experts as the others, where no number of experts is a key of its own."""
    counts = () if isinstance(config.model, SizedModel) else architecture_of(config.model).expert_counts
    odd = next((count for count in counts if count % dims.ep), None)
    if odd is None:
        return None
    valid = ", ".join(
        str(size) for size in range(1, odd + 1) if odd % size == 0 and dims.ep * dims.same_experts % size == 0
    )
    return f"it does not divide the {odd} experts of model={config.model.name}: choices are {valid}"
