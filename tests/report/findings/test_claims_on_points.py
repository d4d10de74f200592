"""Claims decided on servers under one load, and on the points of microbenchmarks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from planning import make_plan
from served_requests import answer, served_row, serving_plan

from llmexp.paper.claims.claims import paper_claims
from llmexp.record.folder import RunFolder
from llmexp.record.result import Metric, ResultPoint, RunResult, RunStatus
from llmexp.report.findings.claims import Claim, Undecided
from llmexp.report.findings.measured import rows_of_runs
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


def timed(family: str, hardware: str, calls: Sequence[tuple[str, int, float]]) -> Row:
    """Return the row of a run that timed calls: the kind, its bytes and its seconds."""
    points = [
        ResultPoint(
            params={"family": family, "kind": kind, "bytes": size, "what_ran": hardware},
            metrics={"time_s": Metric(mean=mean, std_between_repeats=mean / 100, n=5)},
        )
        for kind, size, mean in calls
    ]
    known = {"id": "0", "stack": "0", "status": RunStatus.SUCCESS, "task": "micro", "engine": "micro", "command": ""}
    known |= {"hardware": hardware, "sweep": "main", "processes": 1, "devices": 1}
    plan: Any = make_plan("task=micro", f"micro={family}", f"hardware={hardware}")
    return Row(RunFolder(Path("nowhere")), plan, RunStatus.SUCCESS, "", RunResult(points=points, **known))
