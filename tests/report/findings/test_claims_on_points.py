"""Claims decided on servers under one load, and on the points of microbenchmarks."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
from planning import make_plan
from served_requests import answer, served_row, serving_plan

from llmexp.paper.claims.claims import paper_claims
from llmexp.record.folder import RunFolder
from llmexp.record.result import Metric, ResultPoint, RunResult, RunStatus
from llmexp.report.findings.claims import Claim, Undecided, own_claims
from llmexp.report.findings.measured import rows_of_runs
from llmexp.report.findings.rows import ClaimRow
from llmexp.report.findings.run_figures import figure_of
from llmexp.report.findings.verdict import CANNOT_TELL
from llmexp.report.row import Row


def claim(name: str) -> Claim | Undecided:
    return next(each for each in paper_claims() if each.id == name)


@pytest.fixture
def served(tmp_path: Path):
    """Return the row of a server with this throughput and median latency."""

    def row(engine: str, tokens_per_s: float, latency_s: float, *words: str) -> Row:
        machine = () if any(word.startswith("hardware=") for word in words) else ("hardware=a800",)
        plan = serving_plan("serve=paper", "serve.requests=2", f"engine={engine}", "model=7b", *machine, *words)
        found = served_row(tmp_path / plan.id, plan, answer(0), answer(1))
        figures = {"output_tokens_per_s": tokens_per_s, "end_to_end_p50_s": latency_s}
        metrics = {name: Metric(mean=mean, std_between_repeats=mean / 100, n=5) for name, mean in figures.items()}
        point = ResultPoint(params={}, metrics=metrics)
        assert found.result
        return replace(found, result=found.result.model_copy(update={"points": [point]}))

    return row


def test_engines_are_compared_under_the_same_load(served) -> None:
    fast, slow, other = served("lightllm", 2000, 20), served("vllm", 1000, 40), served("tgi", 1000, 10)
    found = rows_of_runs([fast, slow, other])
    assert {name: claim(name).answer(found).verdict for name in ("H8a", "S57", "S59")} == {
        "H8a": "holds",
        "S57": "holds",
        "S59": "holds",
    }
    assert claim("S58").answer(found).verdict == CANNOT_TELL
    elsewhere = served("vllm", 1000, 40, "serve.output.tokens=64")
    assert claim("S57").answer(rows_of_runs([fast, other, elsewhere])).verdict == CANNOT_TELL


def test_machines_and_models_are_compared_too(served) -> None:
    runs = [served("vllm", 1000, 40, f"hardware={name}") for name in ("a800", "rtx4090")]
    runs += [served("vllm", 1500, 30, "hardware=rtx3090"), served("vllm", 500, 400, "hardware=rtx4090", "model=70b")]
    found = rows_of_runs(runs)
    assert claim("S65").answer(found).verdict == "holds"
    assert claim("S62").answer(found).verdict == "holds"
    assert claim("S64").answer(found).verdict != "holds"


def test_a_server_that_ran_out_of_memory_decides_claims_about_that(served) -> None:
    run = served("tgi", 1, 1, "hardware=rtx4090", "model=70b")
    assert run.result
    out = replace(run, state="oom", result=run.result.model_copy(update={"status": RunStatus.OOM, "points": []}))
    assert claim("S56").answer(rows_of_runs([out])).verdict == "holds"


def test_kinds_of_calls_are_compared_at_the_same_size() -> None:
    both = {"host_to_device_pinned": 1.0, "device_to_host_pinned": 1.1}
    alike = timed("copies", "a800", [(kind, size, mean * size) for kind, mean in both.items() for size in (1, 1024)])
    answered = claim("S80").answer(rows_of_runs([alike]))
    assert (answered.verdict, "2 of 2 pairs" in answered.numbers) == ("holds", True)
    uneven = timed("copies", "a800", [(kind, 1024, mean) for kind, mean in zip(both, (1.0, 2.0), strict=True)])
    assert claim("S80").answer(rows_of_runs([uneven])).verdict == "fails"


def test_links_are_compared_by_the_same_call() -> None:
    slow, fast = (
        timed("collectives", name, [("all_gather", 1024, mean), ("reduce", 1024, 1.0)])
        for name, mean in (("rtx3090", 4.0), ("rtx3090_nvlink", 1.0))
    )
    assert claim("S82").answer(rows_of_runs([slow, fast])).verdict == "holds"
    assert claim("S83").answer(rows_of_runs([slow, fast])).verdict == CANNOT_TELL


def test_an_eight_bit_cache_is_judged_by_the_tokens_that_a_server_says_it_holds(holding) -> None:
    int8 = "engine.options.kv_dtype=int8"
    plain, doubled = holding(60_000), holding(118_000, int8)
    answered = claim("S90").answer(rows_of_runs([plain, doubled]))
    assert (answered.verdict, answered.numbers) == ("holds", "kv_cache_tokens ratio 1.97")
    assert claim("S90").answer(rows_of_runs([plain, holding(96_000, int8)])).verdict == "partly"
    assert claim("S90").answer(rows_of_runs([plain, holding(66_000, int8)])).verdict == "fails"
    assert claim("S90").answer(rows_of_runs([doubled])).verdict == CANNOT_TELL
    unsure = holding(118_000, int8, deviation=20_000)
    assert claim("S90").answer(rows_of_runs([plain, unsure])).verdict == CANNOT_TELL


def test_servers_with_caches_of_other_dtypes_are_not_compared(served) -> None:
    ours, others = served("lightllm", 2000, 20, "engine.options.kv_dtype=int8"), served("vllm", 1000, 40)
    assert claim("H8a").answer(rows_of_runs([ours, others])).verdict == CANNOT_TELL
    assert claim("S57").answer(rows_of_runs([ours, others, served("tgi", 1000, 40)])).verdict == CANNOT_TELL


def test_a_cache_of_a_size_that_was_asked_for_or_of_other_options_tells_nothing(holding) -> None:
    int8, told = "engine.options.kv_dtype=int8", "engine.options.kv_tokens=60000"
    asked = [holding(60_000, told), holding(60_000, told, int8)]
    assert claim("S90").answer(rows_of_runs(asked)).verdict == CANNOT_TELL
    other = [holding(60_000, "engine.options.memory_fraction=0.5"), holding(118_000, int8)]
    assert claim("S90").answer(rows_of_runs(other)).verdict == CANNOT_TELL


@pytest.fixture
def holding(served):
    """Return the row of a LightLLM server whose cache has room for so many tokens; each words' server is made once."""
    made: dict[tuple[str, ...], Row] = {}

    def row(tokens: int, *words: str, deviation: float = 0) -> Row:
        found = made[words] = made.get(words) or served("lightllm", 1000, 10, *words)
        held = {"kv_cache_tokens": Metric(mean=tokens, std_between_repeats=deviation, n=3)}
        return replace(found, result=found.result.model_copy(update={"metrics": held}))

    return row


SIZES = tuple(1024 * 4**power for power in range(11))
COPIES = ("host_to_device_pinned", "device_to_host_pinned")


@pytest.mark.parametrize(("name", "family", "kinds"), [("S81", "copies", COPIES), ("S84", "collectives", ("reduce",))])
@pytest.mark.parametrize(
    ("start_s", "bytes_per_s", "verdict"),
    [
        (1e-5, 2e10, "holds"),
        (0, 2e10, "partly"),  # small ones are bound by bandwidth too
        (1e-5, 1e14, "partly"),  # large ones are bound by start-up too
    ],
)
def test_calls_are_bound_by_start_up_where_small_and_by_bandwidth_where_large(
    name, family, kinds, start_s, bytes_per_s, verdict
) -> None:
    def run(of: Sequence[int], deviation: float = 0.01, repeats: int = 5) -> Row:
        calls = [(kind, size, start_s + size / bytes_per_s) for kind in kinds for size in of]
        return timed(family, "a800", calls, deviation, repeats)

    answered = claim(name).answer(rows_of_runs([run(SIZES)]))
    assert answered.verdict == verdict
    assert f"in {len(kinds) if start_s else 0} of {len(kinds)} curves" in answered.numbers
    for unsure in (run(SIZES, repeats=1), run(SIZES, deviation=3.0), run(SIZES[:1]), run(SIZES[:4]), run(SIZES[8:])):
        assert claim(name).answer(rows_of_runs([unsure])).verdict == CANNOT_TELL


def test_a_time_that_falls_and_jumps_fails() -> None:
    calls = [("reduce", size, mean) for size, mean in ((1024, 1e-6), (65536, 1e-4), (2**24, 1e-3), (2**30, 1e-3))]
    assert claim("S84").answer(rows_of_runs([timed("collectives", "a800", calls)])).verdict == "fails"


def test_curves_of_other_machines_and_kinds_are_not_joined() -> None:
    small, large = (
        timed("collectives", name, [("reduce", size, 1e-5)]) for name, size in (("a800", 1024), ("h100", 65536))
    )
    answered = claim("S84").answer(rows_of_runs([small, large]))
    assert answered.numbers.startswith(
        "no curve of time_s over bytes up to 65,536; no curve of time_s over bytes from 16,"
    )
    gathered = timed("collectives", "a800", [("all_gather", size, 1e-5) for size in SIZES])
    assert "no curve" in claim("S84").answer(rows_of_runs([gathered])).numbers


@pytest.mark.parametrize(
    ("by_m", "by_nk", "verdict"),
    [(0.0, 0.05, "holds"), (0.5, 0.05, "partly"), (0.0, -0.05, "partly"), (0.5, -0.05, "fails")],
)
def test_products_gain_by_n_and_k_where_m_gains_no_more(by_m, by_nk, verdict) -> None:
    def run(rows: Sequence[int], repeats: int = 5, deviation: float = 0.01) -> Row:
        rates = [(m, n, 1e14 * m**by_m * n**by_nk) for m in rows for n in (4096, 16384)]
        return multiplied(rates, deviation, repeats)

    assert claim("S76").answer(rows_of_runs([run((4096, 8192, 12288, 16384))])).verdict == verdict
    everything = (8192, 16384)
    for unsure in (run((8192, 12288)), run(everything, repeats=1), run(everything, deviation=0.5)):
        assert claim("S76").answer(rows_of_runs([unsure])).verdict == CANNOT_TELL


@pytest.mark.parametrize(("rate", "verdict"), [(0.8e14, "holds"), (1.2e14, "fails"), (1.0e14, CANNOT_TELL)])
def test_a_product_off_the_tile_is_compared_with_the_one_below_it(rate, verdict) -> None:
    aligned, off = (
        multiplied([(m, 4096, 1e14) for m in (4096, 8192)]),
        multiplied([(m + 13, 4096, rate) for m in (4096, 8192)]),
    )
    assert claim("S77").answer(rows_of_runs([aligned, off])).verdict == verdict
    assert claim("S77").answer(rows_of_runs([off])).verdict == CANNOT_TELL
    elsewhere = multiplied([(m + 13, 11008, rate) for m in (4096, 8192)])
    assert claim("S77").answer(rows_of_runs([aligned, elsewhere])).verdict == CANNOT_TELL
    once = multiplied([(m + 13, 4096, rate) for m in (4096, 8192)], repeats=1)
    assert claim("S77").answer(rows_of_runs([aligned, once])).verdict == CANNOT_TELL


@pytest.mark.parametrize("curves", [1, 4, 40])
@pytest.mark.parametrize("least", [0.0001, 0.9])
def test_curves_at_the_limit_are_seldom_told_from_it(tmp_path, curves, least) -> None:
    """With 5 repeats that deviate by 1 %, a curve of the limit's exponent gets a verdict in at most 5 % of the sets."""
    row = f"shape: growth, metric: time_s, over: bytes, counts: [null, 0.25], holds: [{least}, 1]"
    (tmp_path / "claims.yaml").write_text(f"{{id: G, statement: it hardly grows, {row}}}")
    [flat] = own_claims(tmp_path / "claims.yaml", (), ())
    draw, told, tries = random.Random(11), 0, 200
    for _ in range(tries):
        found = [drawn(draw, number, size) for number in range(curves) for size in (1024, 65536)]
        told += flat.answer(found).verdict != CANNOT_TELL
    assert told / tries <= 0.05


def drawn(draw: random.Random, number: int, size: int) -> ClaimRow:
    """Return a call whose time grows as size ** 0.25, as five repeats find it."""
    repeats = [draw.gauss(size**0.25, 0.01 * size**0.25) for _ in range(5)]
    found = figure_of(Metric(mean=fmean(repeats), std_between_repeats=stdev(repeats), n=5))
    place = {"method": frozenset({f"K{number}"}), "batches": frozenset({"one"}), "setting": f'{{"bytes": {size}}}'}
    return ClaimRow("", f"{number} {size}", {"time_s": found}, **place)


def multiplied(rates: Sequence[tuple[int, int, float]], deviation: float = 0.01, repeats: int = 5) -> Row:
    """Return the row of a run of square products, n by n: their m, n and FLOP/s."""
    points = [
        ResultPoint(
            params={"family": "gemm", "kind": "gemm", "dtype": "bf16", "m": m, "n": n, "k": n},
            metrics={"flops_per_s": around(rate, deviation, repeats)},
        )
        for m, n, rate in rates
    ]
    return ended("gemm", "a800", points)


def around(mean: float, deviation: float, repeats: int) -> Metric:
    return Metric(mean=mean, std_between_repeats=mean * deviation if repeats > 1 else None, n=repeats)


def timed(
    family: str, hardware: str, calls: Sequence[tuple[str, int, float]], deviation: float = 0.01, repeats: int = 5
) -> Row:
    """Return the row of a run that timed calls: the kind, its bytes and its seconds."""
    points = [
        ResultPoint(
            params={"family": family, "kind": kind, "bytes": size, "what_ran": hardware},
            metrics={"time_s": around(mean, deviation, repeats)},
        )
        for kind, size, mean in calls
    ]
    return ended(family, hardware, points)


def ended(family: str, hardware: str, points: list[ResultPoint]) -> Row:
    known = {"id": "0", "stack": "0", "status": RunStatus.SUCCESS, "task": "micro", "engine": "micro", "command": ""}
    known |= {"hardware": hardware, "sweep": "main", "processes": 1, "devices": 1}
    plan: Any = make_plan("task=micro", f"micro={family}", f"hardware={hardware}")
    return Row(RunFolder(Path("nowhere")), plan, RunStatus.SUCCESS, "", RunResult(points=points, **known))
