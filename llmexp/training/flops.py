"""The FLOPs of one step on one rank, counted in several ways.

There are the model's FLOPs by two conventions, those of tokens without padding, and those that the devices computed.
"""

from __future__ import annotations

import re

from llmexp.record.flops import Flops
from llmexp.record.samples import StepSample

# These are attention kernels, by the names that a rank records, that store no scores; any other kernel is a softmax
# between two products.
_FUSED = re.compile(r"flash|cudnn_attention|efficient_attention", re.IGNORECASE)


def squares(sample: StepSample, flops: Flops) -> float | None:
    """Return the sum of the squared lengths of records.

    If they were not counted, those of whole sequences are returned, or None where padding shows that records are
    shorter.
    """
    if sample.record_squares is not None:
        return sample.record_squares
    return sample.positions * flops.seq_len if sample.real_tokens == sample.positions else None


def model(sample: StepSample, flops: Flops) -> float | None:
    """Count all positions, also padding; attention is causal, within records, and of their tokens only."""
    found = squares(sample, flops)
    return None if found is None else sample.positions * flops.per_position + found * flops.attention_per_square


def useful(sample: StepSample, flops: Flops) -> float | None:
    """Count the tokens that are not padding; attention is counted as in `model`."""
    found = squares(sample, flops)
    return None if found is None else sample.real_tokens * flops.per_position + found * flops.attention_per_square


def full_attention(sample: StepSample, flops: Flops) -> float:
    """Count all positions, with attention between every pair in a sequence, masked or not."""
    return sample.positions * flops.full_attention_per_position


def computed(sample: StepSample, flops: Flops, kernel: str | None) -> float | None:
    """Return what the devices computed with the attention kernel that ran; None where llmexp does not know it.

    The planned kernel counts where none was recorded.
    """
    if flops.computed is None:
        return None
    fused = flops.computed.fused if kernel is None else bool(_FUSED.search(kernel))
    lengths = sample.bounded_squares if fused else sample.positions * flops.seq_len
    return (
        None
        if lengths is None
        else sample.positions * flops.computed.per_position + lengths * flops.computed.per_square(fused)
    )
