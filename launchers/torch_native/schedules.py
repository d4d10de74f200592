"""The schedules of torch.distributed.pipelining in torch 2.13, and their limits as the reason of a skip, or None."""

from __future__ import annotations

from collections.abc import Mapping

from llmexp.inputs.hf_config import config_of
from llmexp.inputs.shape import architecture_name, shape_of
from llmexp.launchers.attention.sequence_limits import dropped_scores
from llmexp.method import Method, Techniques
from llmexp.schema import SizedModel
from llmexp.training.config import TrainingConfig
from llmexp.training.limits import own_code
from llmexp.training.plan.dims import ParallelDims
from llmexp.training.plan.schedules import ANY, EVEN_ROUNDS, NO_FEWER_THAN_STAGES, SCHEDULES, Passes

# These names are those of torch's get_schedule_class.
CLASSES = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved": "Interleaved1F1B",
    "looped_bfs": "LoopedBFS",
    "zero_bubble": "InterleavedZeroBubble",
    "zbv": "ZBVZeroBubble",
    "dualpipev": "DualPipeV",
}
PASSES: Mapping[str, Passes] = {
    "gpipe": ANY,
    "1f1b": NO_FEWER_THAN_STAGES,
    "interleaved": EVEN_ROUNDS,
    "looped_bfs": ANY,
    "zero_bubble": EVEN_ROUNDS,
    "zbv": ANY,
    "dualpipev": NO_FEWER_THAN_STAGES,
}
# These schedules have a backward pass for a stage's inputs and a later one for its weights.
SPLIT_BACKWARD = ("zero_bubble", "zbv", "dualpipev")
ARCHITECTURES = ("llama", "mistral", "qwen3", "mixtral", "qwen3_moe")


def unpipelined(config: TrainingConfig, techniques: Techniques, dims: ParallelDims) -> str | None:
    """Say why a model cannot be cut into stages; None where it can, or at one stage."""
    if dims.schedule is None:
        return None
    reason = next((reason for reason, holds in _beyond(config, dims).items() if holds), None)
    if reason:
        return f"engine=torch with parallelism.pp={dims.pp}: {reason}"
    hooked = [atom.code for atom in Method.parse(config.method, config.task.name).atoms if atom.model_hook]
    on_whole = f"{', '.join(hooked)} acts on a whole model, not on pipeline stages" if hooked else None
    return on_whole or _unsharded(techniques, dims) or _unsplit(config, techniques, dims.schedule)


def _beyond(config: TrainingConfig, dims: ParallelDims) -> dict[str, bool]:
    """Return the reasons that a model gives, and whether each holds."""
    model, optimizer = config.model, config.optimizer
    name, untried = architecture_name(model), optimizer.targets not in ((), ("torch.optim.SGD",))
    said = {"tie_word_embeddings": model.tie_embeddings} if isinstance(model, SizedModel) else config_of(model) or {}
    taken = f"it takes models of architecture {', '.join(ARCHITECTURES)}"
    return (
        own_code(model)
        | dropped_scores(model)
        | {
            f"{taken}, not model={model.name} ({name})": name not in ARCHITECTURES or bool(model.target),
            f"{taken} without biases, and config.json of model={model.name} has some, or no architectures": (
                shape_of(model) is None and name != "qwen3_moe"
            ),
            "output_router_logits of config.json adds a loss of all layers, and no stage has all: set it to false": (
                bool(said.get("output_router_logits"))
            ),
            "two ranks update the weight of tied embeddings alike, as has been tried with optimizer=adamw and sgd, not "
            f"with {optimizer.name}": untried and not dims.v_shaped and bool(said.get("tie_word_embeddings")),
        }
    )


def _unsharded(techniques: Techniques, dims: ParallelDims) -> str | None:
    """Say what FSDP2 cannot shard stages with."""
    stage, schedule = techniques.zero_stage, dims.schedule
    if stage > 1 and schedule in SPLIT_BACKWARD:
        fitting = (name for name in CLASSES if SCHEDULES[name].takes(dims.virtual_stages))
        whole = ", ".join(name for name in fitting if name not in SPLIT_BACKWARD)
        return (
            f"Z{stage}: {schedule} splits backward passes, and FSDP2 reduces a layer's gradients once its inputs have "
            f"theirs: set parallelism.schedule to one of {whole}"
        )
    if techniques.offload_optimizer:
        return "O: pipeline stages have not been tried with state on the host: leave O out, or set parallelism.pp=1"
    return None


def _unsplit(config: TrainingConfig, techniques: Techniques, schedule: str) -> str | None:
    """Say which technique does not work with a backward pass in parts."""
    if schedule not in SPLIT_BACKWARD:
        return None
    again = "R" * techniques.recomputation + "RS" * techniques.attention_recomputation
    if again:
        return (
            f"{again}: {schedule} splits backward passes, so a layer would rerun for its inputs and for each group of "
            f"its weights"
        )
    if techniques.compilation:
        return f"C: {schedule} splits backward passes, which torch cannot do with those of compiled layers"
    if config.precision.linears:
        return (
            f"precision.linears={config.precision.linears}: {schedule} splits backward passes, and torchao would "
            "multiply for both gradients in each part"
        )
    return None
