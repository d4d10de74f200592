"""FLOPs of a rank's step, by what they count: the model's by two conventions, of tokens that are no padding, and the devices' own."""

from __future__ import annotations

import re

from llmexp.record.flops import Flops
from llmexp.record.samples import StepSample

# Of the names that a rank records for its attention kernel, those that keep no scores; others are a softmax between two products.
_FUSED = re.compile(r"flash|cudnn_attention|efficient_attention", re.IGNORECASE)


def squares(sample: StepSample, flops: Flops) -> float | None:
    """Squared lengths of records; where nobody counted them those of whole sequences, and None where padding shows that records are shorter."""
    if sample.record_squares is not None:
        return sample.record_squares
    return sample.positions * flops.seq_len if sample.real_tokens == sample.positions else None


def model(sample: StepSample, flops: Flops) -> float | None:
    """Of all positions, padding too, with causal attention within records, of their tokens alone."""
    found = squares(sample, flops)
    return None if found is None else sample.positions * flops.per_position + found * flops.attention_per_square


def useful(sample: StepSample, flops: Flops) -> float | None:
    """The same of tokens that are no padding."""
    found = squares(sample, flops)
    return None if found is None else sample.real_tokens * flops.per_position + found * flops.attention_per_square


def full_attention(sample: StepSample, flops: Flops) -> float:
    """Of all positions, with every pair of each sequence, masked or not."""
    return sample.positions * flops.full_attention_per_position


def computed(sample: StepSample, flops: Flops, kernel: str | None) -> float | None:
    """What the devices computed with the attention kernel that ran, the planned one where none was seen; None where llmexp does not know."""
    if flops.computed is None:
        return None
    fused = flops.computed.fused if kernel is None else bool(_FUSED.search(kernel))
    lengths = sample.bounded_squares if fused else sample.positions * flops.seq_len
    return (
        None
        if lengths is None
        else sample.positions * flops.computed.per_position + lengths * flops.computed.per_square(fused)
    )
