"""The shares of llmexp's own atoms, those that partition or move state and those of kernels excepted.

How a rank holds its part with Z1, Z2, Z3 and O is the engine's (`TrainingEngine.storage`); F, RS and C decide with
`kernels` what a layer's kernels keep (`activations.Formula`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace

from llmexp.inputs.shape import ModelShape
from llmexp.schema import AdapterConfig
from llmexp.training.plan.activations import Formula, Layer
from llmexp.training.plan.share import Share
from llmexp.training.plan.trained import Trained, lora_parameters


class _FourBit(Share):
    """The layers' matrices are frozen in 4 bits."""

    def trained(self, made: Trained, shape: ModelShape, adapter: AdapterConfig) -> Trained:
        """Take the matrices from what trains."""
        four_bit = shape.linear_parameters
        return replace(made, trainable=made.trainable - four_bit, four_bit=four_bit, matrices_train=False)


class _Adapter(Share, ABC):
    """The whole model is frozen, and what is added trains."""

    def trained(self, made: Trained, shape: ModelShape, adapter: AdapterConfig) -> Trained:
        """Freeze what trained, and add the adapter's parameters."""
        narrow, added = self.added(shape, adapter)
        frozen = replace(made, frozen=made.trainable, matrices_train=False, head_trains=False)
        return replace(frozen, trainable=added, of_linear=narrow)

    @abstractmethod
    def added(self, shape: ModelShape, adapter: AdapterConfig) -> tuple[int, int]:
        """Return the parameters that every token is multiplied with, and all that are added."""


class _Prompt(_Adapter):
    def added(self, shape: ModelShape, adapter: AdapterConfig) -> tuple[int, int]:
        """Return the embeddings before a sequence, which are looked up."""
        return 0, adapter.virtual_tokens * shape.hidden_size


class _Lora(_Adapter):
    def added(self, shape: ModelShape, adapter: AdapterConfig) -> tuple[int, int]:
        """Return the narrow matrices."""
        narrow = lora_parameters(shape, adapter)
        return narrow, narrow


class _FourBitLora(_Lora):
    def trained(self, made: Trained, shape: ModelShape, adapter: AdapterConfig) -> Trained:
        """Freeze the matrices in 4 bits and the rest as it is."""
        return super().trained(FOUR_BIT.trained(made, shape, adapter), shape, adapter)


class _Recomputation(Share):
    """A layer keeps its input and what memory.keep names; what backward needs exists for one layer at a time."""

    def layer(self, made: Layer, formula: Formula) -> Layer:
        """Keep the input, and results."""
        results, needed = formula.kept_results()
        return replace(made, kept=made.entry + results, again=made.kept - needed, whole=made.kept)


FOUR_BIT, PROMPT, LORA, FOUR_BIT_LORA, RECOMPUTATION = _FourBit(), _Prompt(), _Lora(), _FourBitLora(), _Recomputation()
