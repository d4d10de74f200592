"""What one pass of a training step computes on."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Packing:
    """The division of a pass into records that do not see each other.

    `position_ids` are positions within records [micro, seq_len]; `bounds` are the parts' bounds in the pass as one
    sequence, int32 [parts + 1]; `lengths` are the lengths of all parts in order. Padding is a part too.
    """

    position_ids: torch.Tensor
    bounds: torch.Tensor
    lengths: tuple[int, ...]


@dataclass(frozen=True)
class MicroBatch:
    """The token ids and labels of one pass, both [micro, seq_len] int64.

    Labels are -100 where nothing is to be learned; `samples` is the number of records in the pass.
    """

    input_ids: torch.Tensor
    labels: torch.Tensor
    real_tokens: int
    samples: int
    packing: Packing | None = None
    record_squares: int | None = None

    @property
    def positions(self) -> int:
        """The computed positions, padding included."""
        return self.input_ids.numel()

    @property
    def bounded_squares(self) -> int:
        """The sum of the squared lengths that bound attention: those of the packing's parts, or of whole sequences."""
        micro, seq_len = self.input_ids.shape
        return sum(length**2 for length in self.packing.lengths) if self.packing else micro * seq_len**2
