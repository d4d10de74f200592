"""What a replica does by itself, without its group."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from planning import make_plan

from llmexp.launchers.data import loader
from llmexp.launchers.torchft.replica import Replica

CPU = torch.device("cpu")


def test_it_says_in_how_many_chunks_the_loss_was_computed() -> None:
    words = ("engine=torchft", "hardware=cpu", "model=tiny", "precision=fp32", "parallelism.dp=2", "data.seq_len=520")
    plan = make_plan(*words, "batch.micro=2", "kernels.chunked_loss=true", "model.num_layers=1")
    assert plan.skip is None
    replica, alone = Replica(plan, CPU), SimpleNamespace(backend="gloo", wrapped=lambda module: module)
    group: Any = alone
    replica.join(group)
    sequences = loader.load(plan.config.data, replica.vocab_size, 4, plan.config.seed)
    (batch,) = next(loader.batches(sequences, 0, 2, plan.batch, CPU))
    replica.pass_alone(batch)
    assert replica.what_ran()["loss_chunks"] == 2
