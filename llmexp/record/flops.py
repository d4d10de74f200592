"""FLOPs of a run by the two quantities they grow with: positions, and the squared lengths of attended sequences."""

from __future__ import annotations

from pydantic import Field

from llmexp.record.samples import Record


class Computed(Record):
    """The FLOPs that the devices compute, useful or not: recomputation, masked pairs and padding count too."""

    per_position: float = Field(description="all products but attention's")
    fp8_per_position: float = Field(0.0, description="of per_position, what is multiplied in fp8")
    fused_per_square: float = Field(
        description="attention of a fused kernel, the causal half of each record or sequence that it is bounded to"
    )
    unfused_per_square: float = Field(
        description="attention in products of its own, of whole sequences with all pairs that are computed"
    )
    fused: bool = Field(description="which of them the plan asks for")

    def per_square(self, fused: bool | None = None) -> float:
        """Return attention's FLOPs per squared length, for the planned kernel where `fused` is None."""
        return self.fused_per_square if (self.fused if fused is None else fused) else self.unfused_per_square


class Flops(Record):
    """The model's FLOPs, forward and backward, without recomputation; `computed` has what the devices compute."""

    per_position: float = Field(description="all products but attention's")
    fp8_per_position: float = Field(0.0, description="of per_position, what is multiplied in fp8")
    attention_per_square: float = Field(description="causal half of a squared length")
    seq_len: float = Field(
        description="of the mean position, so that positions x seq_len are the squared lengths of whole sequences"
    )
    whole_per_square: float | None = Field(
        None, description="attention of every pair, where windows leave out more than the causal half does"
    )
    computed: Computed | None = Field(
        None, description="None where llmexp does not build the model, or its layers are not like Llama's"
    )

    def at_peak(self, times: float) -> Flops:
        """Return them with those in fp8 divided by `times`, as whose peak is so many times as high."""
        saved = 1 - 1 / times
        made = self.computed and self.computed.model_copy(
            update={"per_position": self.computed.per_position - saved * self.computed.fp8_per_position}
        )
        return self.model_copy(
            update={"per_position": self.per_position - saved * self.fp8_per_position, "computed": made}
        )

    @property
    def full_attention_per_position(self) -> float:
        """FLOPs per position by PaLM's convention: it counts both halves of every sequence, whatever is masked."""
        whole = 2 * self.attention_per_square if self.whole_per_square is None else self.whole_per_square
        return self.per_position + whole * self.seq_len
