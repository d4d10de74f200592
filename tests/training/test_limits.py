from __future__ import annotations

import pytest
from planning import make_plan


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            "engine=deepspeed parallelism.cp=1 parallelism.ep=2 model=tiny-moe",
            "engine=deepspeed runs data and context parallelism only, not ep=2",
        ),
        ("engine=deepspeed parallelism.cp_kind=ring", "engine=deepspeed runs parallelism.cp_kind=ulysses, not ring"),
        (
            "engine=deepspeed method=C",
            "C compiles decoder layers whole, and with parallelism.cp the ranks communicate inside them",
        ),
        (
            "engine=deepspeed method=Z3 parallelism.shard=2",
            "engine=deepspeed does not take parallelism.shard: leave it out, or set engine=torch",
        ),
        ("engine=deepspeed parallelism.pp=2", "engine=deepspeed runs data and context parallelism only, not pp=2"),
        (
            "engine=torch parallelism.cp=1 parallelism.pp=2 batch.accumulation=2 parallelism.ends_as_layers=both",
            "engine=torch does not take parallelism.ends_as_layers: leave it out, or set engine=megatron",
        ),
        ("engine=deepspeed method=F+R+Z3+O", None),
        ("engine=megatron parallelism.cp_kind=ulysses method=F+R+Z1", None),
        ("engine=torch parallelism.cp_kind=ulysses method=F+R+Z3+O", None),
    ],
)
def test_what_engines_do_with_a_sequence_cut_over_ranks(words: str, reason: str | None) -> None:
    skip = make_plan("model=tiny", "hardware=a800", "parallelism.cp=2", *words.split()).skip
    assert (skip and skip.reason) == reason
