"""Which of a run's parameters train, which are frozen and in how many bits, by arithmetic alone."""

from __future__ import annotations

from dataclasses import dataclass

from llmexp.method import Techniques
from llmexp.plan.shape import ModelShape
from llmexp.schema import AdapterConfig


@dataclass(frozen=True)
class Trained:
    """Counts of the whole model's parameters: those that train, and of the frozen ones those in the parameters' dtype and those in 4 bits."""

    trainable: int
    frozen: int = 0
    four_bit: int = 0
    of_linear: int = 0
    """Trainable ones in matrices beside the layers', through which every token goes."""

    @classmethod
    def of(cls, shape: ModelShape, techniques: Techniques, adapter: AdapterConfig) -> Trained:
        """Without atoms of this kind all train; Q freezes the layers' matrices, an adapter the whole model."""
        four_bit = shape.linear_parameters if techniques.quantization else 0
        if techniques.adapter is None:
            return cls(shape.parameters - four_bit, four_bit=four_bit)
        narrow = lora_parameters(shape, adapter) if techniques.adapter == "lora" else 0
        added = narrow or adapter.virtual_tokens * shape.hidden_size
        return cls(added, shape.parameters - four_bit, four_bit, narrow)


def lora_parameters(shape: ModelShape, adapter: AdapterConfig) -> int:
    """Of A [rank, in] and B [out, rank] beside each target, in all layers (arXiv 2106.09685, section 4.1)."""
    return (
        shape.num_layers
        * adapter.rank
        * sum(sum(sides) for name, sides in shape.matrices.items() if name in adapter.targets)
    )


def flops_per_token(shape: ModelShape, seq_len: float, techniques: Techniques, adapter: AdapterConfig) -> float:
    """Model FLOPs of a token: 4 instead of 6 for each frozen parameter that it is multiplied with, and the adapter's own."""
    adapted, trained = techniques.adapter is not None, Trained.of(shape, techniques, adapter)
    base = shape.flops_per_token(
        seq_len, linear_trained=not (adapted or techniques.quantization), head_trained=not adapted
    )
    return base + 6.0 * trained.of_linear
