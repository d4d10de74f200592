"""The digest of the sequences that a step reads: equal wherever ranks and passes share the same sequences out."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from llmexp.measure.batch import MicroBatch

# The mixing steps of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), as signed numbers: int64 wraps around.
_GOLDEN, _FIRST, _SECOND = -0x61C8864680B583EB, -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15


def digest_of(passes: Sequence[MicroBatch]) -> torch.Tensor:
    """Return the sum of the digests of all sequences of these passes, modulo 2^64, an int64 scalar on their device.

    A sequence's digest depends on its ids and labels and on their order. A sum does not depend on the order of the
    sequences, so that those of replicas add up to the step's.
    """
    return torch.stack([_of_sequences(batch).sum() for batch in passes]).sum()


def _of_sequences(batch: MicroBatch) -> torch.Tensor:
    """Return a digest for each sequence, int64 [micro]."""
    places = torch.arange(1, batch.input_ids.shape[1] + 1, device=batch.input_ids.device) * _GOLDEN
    tokens = _mixed(batch.input_ids + places)
    return _mixed(_mixed(tokens + batch.labels).sum(dim=1))


def _mixed(values: torch.Tensor) -> torch.Tensor:
    values = (values ^ (values >> 30)) * _FIRST
    values = (values ^ (values >> 27)) * _SECOND
    return values ^ (values >> 31)
