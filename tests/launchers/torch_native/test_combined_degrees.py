"""Degrees of parallelism together on real gloo ranks of engine=torch: the training of one process, the planned bytes.

Cut matrices, shared sequences and stages, two or three of them or all, with replicas and without.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cut_training import Layouts, compare_saved
from planning import Measurement

pytestmark = pytest.mark.ranks


def grid(**degrees: int) -> str:
    return " ".join(f"parallelism.{name}={size}" for name, size in degrees.items())


def schedule(name: str, stages: int = 1) -> str:
    return f"parallelism.schedule={name} parallelism.virtual_stages={stages}" + " model.num_layers=4" * (stages > 1)


SEQUENCE, ULYSSES = "parallelism.sequence=true", "parallelism.cp_kind=ulysses"
QWEN = "model.architecture=qwen3"
TP_CP, TP_PP, CP_PP = grid(tp=2, cp=2), grid(tp=2, pp=2), grid(cp=2, pp=2)
THREE, ALL = grid(tp=2, cp=2, pp=2), grid(dp=2, tp=2, cp=2, pp=2)
# Measured: 1e-7 of losses, 2.3e-7 of gradient norms.
ROWS = {
    "tp cp": TP_CP,
    "tp cp, F, sequence": f"{TP_CP} {SEQUENCE} method=F",
    "tp cp, R, ulysses": f"{TP_CP} {ULYSSES} method=R",
    "tp cp, F+R, padded": f"{TP_CP} method=F+R data.pack=false",
    "tp cp, ulysses, RS": f"{TP_CP} {ULYSSES} method=RS",
    "tp cp, Z2": f"{TP_CP} method=Z2",
    "tp cp, Z3, sequence": f"{TP_CP} {SEQUENCE} method=Z3",
    "tp cp, bf16_mixed": f"{TP_CP} precision=bf16_mixed",
    "tp cp, Z3, bf16_mixed": f"{TP_CP} precision=bf16_mixed method=Z3",
    "tp cp, qwen3, F": f"{TP_CP} {QWEN} method=F",
    "tp pp": TP_PP,
    "tp pp, qwen3, sequence": f"{TP_PP} {SEQUENCE} {QWEN}",
    "tp pp, F, sequence": f"{TP_PP} {SEQUENCE} method=F",
    "tp pp, R, sequence, padded": f"{TP_PP} {SEQUENCE} method=R data.pack=false",
    "tp pp, RS, gpipe": f"{TP_PP} {schedule('gpipe')} method=RS",
    "tp pp, sequence, chunked": f"{TP_PP} {SEQUENCE} kernels.chunked_loss=true",
    "tp pp, tied, chunked": f"{TP_PP} model.tie_embeddings=true kernels.chunked_loss=true",
    "tp cp, F, chunked": f"{TP_CP} method=F kernels.chunked_loss=true",
    "tp pp, bf16_mixed": f"{TP_PP} precision=bf16_mixed",
    "tp pp, C": f"{TP_PP} method=C",
    "tp pp, C+F+R, sequence": f"{TP_PP} {SEQUENCE} method=C+F+R",
    "tp pp, C, interleaved, qwen3, sequence": f"{TP_PP} {SEQUENCE} {schedule('interleaved', 2)} {QWEN} method=C",
    "tp pp, C+RS, gpipe": f"{TP_PP} {schedule('gpipe')} method=C+RS",
    "tp pp, C+F, bf16_mixed": f"{TP_PP} precision=bf16_mixed method=C+F",
    "tp pp, interleaved": f"{TP_PP} {schedule('interleaved', 2)}",
    "tp pp, sequence, looped_bfs": f"{TP_PP} {SEQUENCE} {schedule('looped_bfs', 2)}",
    "tp pp, sequence, zero_bubble": f"{TP_PP} {SEQUENCE} {schedule('zero_bubble', 2)}",
    "tp pp, F, zbv": f"{TP_PP} {schedule('zbv', 2)} method=F",
    "tp pp, sequence, dualpipev": f"{TP_PP} {SEQUENCE} {schedule('dualpipev', 2)}",
    "cp pp": CP_PP,
    "cp pp, F+R, padded, chunked": f"{CP_PP} method=F+R data.pack=false kernels.chunked_loss=true",
    "cp pp, F+R, padded": f"{CP_PP} method=F+R data.pack=false",
    "cp pp, ulysses, Z1": f"{CP_PP} {ULYSSES} method=Z1",
    "cp pp, ulysses, RS, gpipe": f"{CP_PP} {ULYSSES} {schedule('gpipe')} method=RS",
    "cp pp, bf16_mixed": f"{CP_PP} precision=bf16_mixed",
    "cp pp, interleaved, qwen3": f"{CP_PP} {schedule('interleaved', 2)} {QWEN}",
    "cp pp, looped_bfs, experts": f"{CP_PP} {schedule('looped_bfs', 2)} model=tiny-moe",
    "cp pp, zero_bubble": f"{CP_PP} {schedule('zero_bubble', 2)}",
    "cp pp, ulysses, zbv": f"{CP_PP} {ULYSSES} {schedule('zbv', 2)}",
    "cp pp, F, dualpipev": f"{CP_PP} {schedule('dualpipev', 2)} method=F",
    "dp cp, shard 2, Z3": f"{grid(dp=2, cp=2, shard=2)} method=Z3",
    "dp cp, shard 1, Z2": f"{grid(dp=2, cp=2, shard=1)} method=Z2",
    "dp tp cp, shard 1, Z3": f"{grid(dp=2, tp=2, cp=2, shard=1)} {SEQUENCE} method=Z3",
    "dp tp cp, F+R+Z3": f"{grid(dp=2, tp=2, cp=2)} {SEQUENCE} method=F+R+Z3",
    "dp tp cp": f"{grid(dp=2, tp=2, cp=2)} {ULYSSES}",
    "dp tp pp": f"{grid(dp=2, tp=2, pp=2)} {SEQUENCE} method=F+R",
    "dp tp pp, Z1": f"{grid(dp=2, tp=2, pp=2)} {SEQUENCE} method=F+Z1",
    "tp cp, Z1": f"{TP_CP} method=Z1",
    "dp cp pp, Z1": f"{grid(dp=2, cp=2, pp=2)} method=Z1",
    "tp cp pp": f"{THREE} {SEQUENCE} method=F+R data.pack=false",
    "tp cp pp, zbv": f"{THREE} {ULYSSES} {schedule('zbv', 2)}",
    "dp tp cp pp": f"{ALL} {SEQUENCE} method=F+R",
    "dp tp cp pp, ulysses": f"{ALL} {ULYSSES}",
}
# Four ranks, all that a pass goes through: every mesh, both kinds of sequences, a stage's bounds along them.
QUICK = {"tp cp, Z3, sequence", "tp pp, R, sequence, padded"}
SHORT = QUICK | {
    *("tp cp, R, ulysses", "tp cp, bf16_mixed", "tp pp, F, zbv", "cp pp, F+R, padded", "cp pp, ulysses, Z1"),
    *("cp pp, interleaved, qwen3", "cp pp, looped_bfs, experts", "dp cp, shard 1, Z2", "dp tp cp, F+R+Z3"),
    *("tp pp, C+F+R, sequence", "dp tp pp", "tp cp pp", "dp tp cp pp"),
}
LAYOUTS = Layouts(ROWS, QUICK, SHORT)


@pytest.fixture(scope="module")
def observed(observe: Callable[..., Measurement], asked: set[str]) -> Measurement:
    return LAYOUTS.train(observe, asked)


@pytest.mark.parametrize("name", LAYOUTS.fp32)
def test_ranks_compute_what_one_process_computes(observed: Measurement, name: str) -> None:
    LAYOUTS.compare(observed, name)


@pytest.mark.parametrize("name", LAYOUTS.bf16)
def test_bf16_follows_the_curve_of_fp32(observed: Measurement, name: str) -> None:
    LAYOUTS.compare_bf16(observed, name)


@pytest.mark.parametrize("name", LAYOUTS.every)
def test_every_rank_holds_what_is_planned(observed: Measurement, name: str) -> None:
    LAYOUTS.compare_state(observed, name)


@pytest.mark.parametrize("name", [each for each in LAYOUTS.every if "method=C" in ROWS[each.values[0]]])
def test_every_stage_runs_compiled_layers(observed: Measurement, name: str) -> None:
    assert min(rank["compiled_graphs"] for rank in observed[name]) > 0


@pytest.mark.slow
@pytest.mark.parametrize("words", [f"{TP_CP} parallelism.dp=1", f"{TP_CP} parallelism.dp=1 {SEQUENCE} method=Z3"])
def test_transformers_loads_the_whole_model_that_was_saved(observe: Callable[..., Measurement], words: str) -> None:
    compare_saved(observe, words)
