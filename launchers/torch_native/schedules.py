"""The schedules of torch.distributed.pipelining in torch 2.13, and their limits as the reason of a skip, or None."""

from __future__ import annotations

from collections.abc import Mapping

from llmexp.method import Method, Techniques
from llmexp.schema import SizedModel
from llmexp.training.config import TrainingConfig
from llmexp.training.plan.schedules import ANY, EVEN_ROUNDS, NO_FEWER_THAN_STAGES, Passes

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
ARCHITECTURES = ("llama", "qwen3", "mixtral")


def unpipelined(config: TrainingConfig, techniques: Techniques) -> str | None:
    """Say why a model cannot be cut into stages."""
    model = config.model
    if not isinstance(model, SizedModel) or model.target:
        return (
            f"engine=torch cuts models of architecture {', '.join(ARCHITECTURES)} into stages, no folders, not "
            f"model={model.name}"
        )
    if model.tie_embeddings:
        return (
            "engine=torch: the first and the last stage of a pipeline do not share an embedding: "
            "set model.tie_embeddings=false"
        )
    if techniques.zero_stage > 1:
        return f"Z{techniques.zero_stage}: engine=torch does not shard pipeline stages with FSDP2: use Z1"
    hooked = [atom.code for atom in Method.parse(config.method, config.task.name).atoms if atom.model_hook]
    return f"{', '.join(hooked)} acts on a whole model, not on pipeline stages" if hooked else None


def unsplit(techniques: Techniques, schedule: str) -> str | None:
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
    return None
