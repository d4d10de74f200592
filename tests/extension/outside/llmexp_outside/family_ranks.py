"""What the family's ranks call, and how it is checked."""

from __future__ import annotations

from functools import partial

import torch
from torch.nn import functional

from llmexp.extend import MicroPoint
from llmexp.extend_ranks import Case, CasePlace


def lookup(point: MicroPoint, place: CasePlace) -> Case:
    table = place.random(point.sizes["vocab"], point.sizes["hidden"], dtype=point.dtype)
    rows = torch.randint(len(table), (point.sizes["tokens"],), device=place.device)
    call = partial(functional.embedding, rows, table)
    return Case([call], lambda: "" if torch.equal(call(), table[rows]) else "the rows are others", "embedding")
