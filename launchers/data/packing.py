"""Keyword arguments for a transformers model, with positions and bounds that keep packed records apart."""

from __future__ import annotations

from typing import Any

from llmexp.measure.batch import MicroBatch

# transformers' attention functions define the other names; this one is the project's own.
LENGTHS = "record_lengths"


def model_inputs(batch: MicroBatch) -> dict[str, Any]:
    """Return the keyword arguments of one pass.

    Eager attention makes its mask from positions that start again at 0; the other functions use the bounds.
    """
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
