"""What a model of transformers is called with, packed records among it: their own positions, and bounds that no attention crosses."""

from __future__ import annotations

from typing import Any

from llmexp.measure.loop import MicroBatch

# As transformers' attention functions know them, and this project's own.
LENGTHS = "record_lengths"


def model_inputs(batch: MicroBatch) -> dict[str, Any]:
    """Keyword arguments of one pass. Eager attention makes its mask from positions that begin again; the others take the bounds."""
    inputs: dict[str, Any] = {"input_ids": batch.input_ids, "labels": batch.labels}
    packing = batch.packing
    if packing is None:
        return inputs
    longest = max(packing.lengths)
    bounds = {
        "cu_seq_lens_q": packing.bounds,
        "cu_seq_lens_k": packing.bounds,
        "max_length_q": longest,
        "max_length_k": longest,
    }
    return inputs | {"position_ids": packing.position_ids, LENGTHS: packing.lengths} | bounds
