"""The counts of a run's trained and frozen parameters, computed without building the model."""

from __future__ import annotations

from dataclasses import dataclass

from llmexp.inputs.shape import ModelShape
from llmexp.method import Techniques
from llmexp.schema import AdapterConfig


@dataclass(frozen=True)
class Trained:
    """The counts of the whole model's parameters: trained, frozen in the parameters' dtype, and frozen in 4 bits."""

    trainable: int
    frozen: int = 0
    four_bit: int = 0
    of_linear: int = 0
    """The trainable parameters of LoRA's matrices, through which every token goes."""

    @classmethod
    def of(cls, shape: ModelShape, techniques: Techniques, adapter: AdapterConfig) -> Trained:
        """Count the parameters: Q freezes the layers' matrices, an adapter freezes the whole model, else all train."""
        four_bit = shape.linear_parameters if techniques.quantization else 0
        if techniques.adapter is None:
            return cls(shape.parameters - four_bit, four_bit=four_bit)
        narrow = lora_parameters(shape, adapter) if techniques.adapter == "lora" else 0
        added = narrow or adapter.virtual_tokens * shape.hidden_size
        return cls(added, shape.parameters - four_bit, four_bit, narrow)


def lora_parameters(shape: ModelShape, adapter: AdapterConfig) -> int:
    """Count the elements of A [rank, in] and B [out, rank] of all targets (arXiv 2106.09685, section 4.1)."""
    return (
        shape.num_layers
        * adapter.rank
        * sum(sum(sides) for name, sides in shape.matrices.items() if name in adapter.targets)
    )


def flops_per_token(shape: ModelShape, seq_len: float, techniques: Techniques, adapter: AdapterConfig) -> float:
    """Return the model FLOPs of a token, the adapter's included; a frozen parameter counts 4 instead of 6."""
    adapted, trained = techniques.adapter is not None, Trained.of(shape, techniques, adapter)
    base = shape.flops_per_token(
        seq_len, linear_trained=not (adapted or techniques.quantization), head_trained=not adapted
    )
    return base + 6.0 * trained.of_linear
