"""The counts of a run's trained and frozen parameters, computed without building the model."""

from __future__ import annotations

from dataclasses import dataclass, replace

from llmexp.inputs.shape import ModelShape
from llmexp.method import Techniques
from llmexp.schema import AdapterConfig
from llmexp.training.plan.dims import ParallelDims
from llmexp.training.plan.share import shares_of

CUT_BY_ROWS = ("o_proj", "down_proj")


@dataclass(frozen=True)
class Trained:
    """The counts of the whole model's parameters: trained, frozen in the parameters' dtype, and frozen in 4 bits."""

    trainable: int
    frozen: int = 0
    four_bit: int = 0
    of_linear: int = 0
    """The trainable parameters of LoRA's matrices, through which every token goes."""
    matrices_train: bool = True
    """The layers' matrices train, those of `frozen_matrices` excepted."""
    head_trains: bool = True
    frozen_matrices: int = 0
    """Parameters of matrices that a token is multiplied with, and that are frozen where the others train."""

    @classmethod
    def of(cls, shape: ModelShape, techniques: Techniques, adapter: AdapterConfig) -> Trained:
        """Count the parameters: all train, unless an atom's share says otherwise."""
        made = cls(shape.parameters)
        for share in shares_of(techniques):
            made = share.trained(made, shape, adapter)
        return made

    def of_rank(self, shape: ModelShape, adapter: AdapterConfig, dims: ParallelDims) -> Trained:
        """Return a rank's part of a frozen model and of its adapter where matrices are cut, else the same."""
        if dims.tp == 1 or not self.frozen or self.four_bit:
            return self
        added = lora_parameters(shape, adapter, dims.tp)
        return replace(self, trainable=added, frozen=shape.parameters_of_rank(dims.rank_part))


def lora_parameters(shape: ModelShape, adapter: AdapterConfig, tp: int = 1) -> int:
    """Count the elements of A [rank, in] and B [out, rank] of all targets (arXiv 2106.09685, section 4.1).

    On a rank of tensor parallelism B is cut where its matrix is cut by columns, and A where it is cut by rows.
    """
    cut = {
        name: (inputs // tp, outputs) if name in CUT_BY_ROWS else (inputs, outputs // tp)
        for name, (inputs, outputs) in shape.matrices.items()
    }
    return shape.num_layers * adapter.rank * sum(sum(sides) for name, sides in cut.items() if name in adapter.targets)


def flops_per_token(shape: ModelShape, seq_len: float, techniques: Techniques, adapter: AdapterConfig) -> float:
    """Return the model FLOPs of a token, the adapter's included; a frozen parameter counts 4 instead of 6."""
    trained = Trained.of(shape, techniques, adapter)
    base = shape.flops_per_token(seq_len, linear_trained=trained.matrices_train, head_trained=trained.head_trains)
    return base + 6.0 * trained.of_linear - 2.0 * trained.frozen_matrices
