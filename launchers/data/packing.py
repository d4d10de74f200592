"""Keyword arguments for a transformers model: what keeps packed records apart, and parts of whole sequences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from llmexp.launchers.data.sequences import IGNORED
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


def inputs_of_part(batch: MicroBatch, part: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, Any]:
    """Return the keyword arguments for a rank's part of whole sequences, which `part` takes from each tensor."""
    ids = batch.input_ids
    positions = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
    return {"input_ids": part(ids), "position_ids": part(positions), **targets_of_part(batch.labels, part)}


def targets_of_part(labels: torch.Tensor, part: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return what a model's loss takes: this part's share of the mean over the tokens of whole sequences.

    Labels are shifted before the cut.
    """
    targets = functional.pad(labels[:, 1:], (0, 1), value=IGNORED)
    here = part(targets)
    return {"labels": here, "shift_labels": here, "num_items_in_batch": (targets != IGNORED).sum()}
