"""What of a model's own configuration ranks that share sequences would compute otherwise than one process.

Such a training ends well, with other losses.
"""

from __future__ import annotations

from llmexp.inputs.architecture.fields import UncountedError
from llmexp.inputs.architecture.model import Architecture
from llmexp.inputs.architecture.reading import architecture_of
from llmexp.inputs.hf_config import config_of
from llmexp.schema import ModelConfig, SizedModel

# Rotary embeddings whose frequencies follow from the longest position of a pass.
_BY_LENGTH = ("dynamic", "longrope")


def unshared_sequences(model: ModelConfig, seq_len: int) -> dict[str, bool]:
    """Return the reasons, and whether each holds; of a hub's name nothing is known before a rank starts."""
    said = {} if isinstance(model, SizedModel) else config_of(model) or {}
    rope = said.get("rope_parameters") or said.get("rope_scaling") or {}
    kind, layers = rope.get("rope_type") or rope.get("type"), _layers(model)
    return dropped_scores(model) | {
        f"rope_type={kind} of config.json goes by the last position, which one rank has": kind in _BY_LENGTH,
        "output_router_logits of config.json balances experts over whole sequences: set it to false": bool(
            said.get("output_router_logits")
        ),
        f"layers of model={model.name} keep a state along the sequence": layers is not None
        and any(layer.mixer.reach is None for layer in layers.kinds),
        f"it has no windows, and one of model={model.name} ends within data.seq_len={seq_len}": layers is not None
        and not layers.attends_all(seq_len),
    }


def dropped_scores(model: ModelConfig) -> dict[str, bool]:
    """Return the reason that attention's own dropout gives, of which ranks would drop other scores."""
    said = {} if isinstance(model, SizedModel) else config_of(model) or {}
    dropout = said.get("attention_dropout") or 0
    return {f"its ranks would drop different scores by attention_dropout={dropout} of config.json: set 0": dropout > 0}


def _layers(model: ModelConfig) -> Architecture | None:
    """Return the layers; None of models that are given by their sizes, which have neither, and of unknown ones."""
    try:
        return None if isinstance(model, SizedModel) else architecture_of(model)
    except UncountedError:
        return None
