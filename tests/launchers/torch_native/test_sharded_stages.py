"""Stages of a pipeline that FSDP2 shards, on real gloo ranks: the training of one process, the planned bytes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cut_training import Layouts
from planning import Measurement

pytestmark = pytest.mark.ranks


def stages(schedule: str, words: str, **degrees: int) -> str:
    """Return the words of two stages, or of two on each of two ranks, on two replicas where nothing else is said."""
    sizes = {"pp": 2, "dp": 2} | degrees
    virtual = 2 if schedule in ("interleaved", "looped_bfs") else 1
    held = [f"parallelism.{name}={size}" for name, size in sizes.items()]
    held += [f"parallelism.schedule={schedule}", f"parallelism.virtual_stages={virtual}", "model.num_layers=4"]
    return " ".join([*held, words])


TIED, CHUNKED, SEQUENCE = "model.tie_embeddings=true", "kernels.chunked_loss=true", "parallelism.sequence=true"
ROWS = {
    "1f1b, Z3": stages("1f1b", "method=Z3"),
    "1f1b, Z2": stages("1f1b", "method=Z2"),
    "gpipe, F+R+Z3": stages("gpipe", "method=F+R+Z3"),
    "gpipe, RS+Z2": stages("gpipe", "method=RS+Z2"),
    "interleaved, Z3": stages("interleaved", "method=Z3"),
    "interleaved, R+Z2, qwen3": stages("interleaved", "method=R+Z2 model.architecture=qwen3"),
    "looped_bfs, Z3, experts": stages("looped_bfs", "method=Z3 model=tiny-moe"),
    "1f1b, Z3, tied": stages("1f1b", f"method=Z3 {TIED}"),
    "interleaved, Z2, tied, chunked": stages("interleaved", f"method=Z2 {TIED} {CHUNKED}"),
    "interleaved, F+R+Z3, chunked, padded": stages("interleaved", f"method=F+R+Z3 {CHUNKED} data.pack=false"),
    "1f1b, C+F+R+Z3": stages("1f1b", "method=C+F+R+Z3"),
    "1f1b, Z3, bf16_mixed": stages("1f1b", "method=Z3 precision=bf16_mixed"),
    "interleaved, Z2, bf16_pure": stages("interleaved", "method=Z2 precision=bf16_pure"),
    "gpipe, Z3, fused projections": stages("gpipe", "method=F+Z3 kernels.fused_projections=true"),
    "1f1b, Z3, shard 1": stages("1f1b", "method=Z3", shard=1),
    "gpipe, Z2, shard 2 of 4": stages("gpipe", "method=Z2", dp=4, shard=2),
    "gpipe, Z2, shard 2 of 4, tied, padded": stages("gpipe", f"method=Z2 {TIED} data.pack=false", dp=4, shard=2),
    "interleaved, Z3, cp, shard 2, tied": stages("interleaved", f"method=F+Z3 {TIED}", cp=2, shard=2),
    "1f1b, Z3, cp, shard 1": stages("1f1b", "method=F+Z3", cp=2, shard=1),
    "1f1b, Z3, tp, shard 1": stages("1f1b", f"method=Z3 {SEQUENCE}", tp=2, shard=1),
    "1f1b, Z3, tp, bf16_mixed": stages("1f1b", f"method=R+Z3 {SEQUENCE} precision=bf16_mixed", tp=2),
    "interleaved, Z3, pp 4": stages("interleaved", "method=Z3 model.num_layers=8", pp=4, dp=1),
    "1f1b, Z3, cp, ulysses": stages("1f1b", "method=Z3 parallelism.cp_kind=ulysses", dp=1, cp=2),
    "interleaved, F+Z2, cp": stages("interleaved", f"method=F+Z2 {TIED}", dp=1, cp=2),
    "1f1b, Z3, tp": stages("1f1b", f"method=Z3 {SEQUENCE}", dp=1, tp=2),
    "1f1b, R+Z3, dp, tp, tied": stages("1f1b", f"method=R+Z3 {SEQUENCE} {TIED}", tp=2),
    "interleaved, Z2, dp, tp": stages("interleaved", f"method=Z2 {CHUNKED}", tp=2),
    "1f1b, Z3, dp, tp, cp": stages("1f1b", f"method=F+R+Z3 {SEQUENCE}", tp=2, cp=2),
}
# Four ranks: what reshards and what stays gathered, with several passes in flight.
QUICK = {"1f1b, Z3", "interleaved, Z2, tied, chunked"}
SHORT = QUICK | {
    *("1f1b, Z2", "gpipe, F+R+Z3", "1f1b, Z3, tied", "interleaved, F+R+Z3, chunked, padded", "1f1b, Z3, bf16_mixed"),
    *("1f1b, Z3, shard 1", "1f1b, R+Z3, dp, tp, tied", "interleaved, Z3, cp, shard 2, tied"),
}
LAYOUTS = Layouts(ROWS, QUICK, SHORT)


@pytest.fixture(scope="module")
def observed(observe: Callable[..., Measurement], asked: set[str]) -> Measurement:
    return LAYOUTS.train(observe, asked)


@pytest.mark.parametrize("name", LAYOUTS.fp32)
def test_sharded_stages_compute_what_one_process_computes(observed: Measurement, name: str) -> None:
    LAYOUTS.compare(observed, name)


@pytest.mark.parametrize("name", LAYOUTS.bf16)
def test_bf16_follows_the_curve_of_fp32(observed: Measurement, name: str) -> None:
    LAYOUTS.compare_bf16(observed, name)


@pytest.mark.parametrize("name", LAYOUTS.every)
def test_every_rank_holds_what_is_planned(observed: Measurement, name: str) -> None:
    LAYOUTS.compare_state(observed, name)


@pytest.mark.parametrize("name", [name for name in LAYOUTS.every if name.values[0] == "1f1b, Z3"])
def test_what_ran_tells_that_fsdp2_made_the_stages(observed: Measurement, name: str) -> None:
    ran = observed[name][0]["what_ran"]
    assert ran["wrapper_class"].endswith(".FSDPShardedStage")
    assert ran["reduced_in"] == "torch.float32"
