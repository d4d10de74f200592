from __future__ import annotations

import pytest

from llmexp.errors import ConfigError


def test_dp_fills_the_node(plan):
    dims = plan("parallelism.tp=2", "parallelism.pp=2").dims
    assert (dims.dp, dims.tp, dims.pp, dims.world_size) == (2, 2, 2, 8)


def test_batch_arithmetic(plan):
    batch = plan("parallelism.dp=3", "batch.micro=2", "batch.accumulation=5").batch
    assert (batch.micro, batch.accumulation, batch.global_) == (2, 5, 30)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["parallelism.tp=3"], "does not divide the 8 devices"),
        (["model=tiny", "parallelism.tp=8"], "parallelism.tp=8 does not divide model.num_heads=4: choices are 1, 2, 4"),
        (["model=tiny", "parallelism.pp=8"], "parallelism.pp=8 does not divide model.num_layers=4"),
        (["data=synthetic", "parallelism.cp=4"], "parallelism.cp=4 does not divide data.seq_len=350"),
        (["parallelism.dp=8", "parallelism.tp=2"], "16 ranks, but hardware=a800 has 8"),
    ],
)
def test_degrees_that_cannot_be_are_refused_with_the_arithmetic(words, message, plan):
    with pytest.raises(ConfigError, match=message):
        plan(*words)
