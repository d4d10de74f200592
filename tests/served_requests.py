"""Made-up answers of a server, for plans as the command line makes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from planning import make_plan

from llmexp.record.folder import RunFolder
from llmexp.record.result import RunResult, RunStatus
from llmexp.report.row import Row
from llmexp.serving.plan.probes import probes_path
from llmexp.serving.plan.serving_plan import LoadPoint, ServingPlan
from llmexp.serving.points import ServingRepeat, results
from llmexp.serving.record.quality import QualitySummary
from llmexp.serving.record.requests import RequestSample
from llmexp.serving.record.summary import ClientOverhead, ReportedBytes, ServingSummary


def serving_plan(*words: str) -> ServingPlan:
    found: Any = make_plan("task=serve", "hardware=cpu", *words)
    assert isinstance(found, ServingPlan)
    return found


def answer(index: int, due_s: float = 0.0, takes_s: float = 2.0, tokens: int = 4, **changed: Any) -> RequestSample:
    """An answer of so many tokens, the first after half the time, each other in steps to the end."""
    gap_us = round(takes_s / 2 * 1e6 / max(tokens - 1, 1))
    known: dict[str, Any] = {
        "index": index,
        "warmup": False,
        "t_start_s": due_s,
        "sent_s": due_s,
        "first_byte_s": due_s + takes_s / 2,
        "chunk_us": [round(takes_s / 2 * 1e6)] + [gap_us] * (tokens - 1),
        "t_end_s": due_s + takes_s,
        "status": 200,
        "asked_prompt_tokens": 8,
        "asked_output_tokens": tokens,
        "usage_prompt_tokens": 8,
        "usage_output_tokens": tokens,
        "token_ids": list(range(tokens)),
    }
    return RequestSample(**known | changed)


def repeat(
    *samples: RequestSample,
    floors: list[ClientOverhead] | None = None,
    probes: Sequence[LoadPoint] = (),
    held: ReportedBytes | None = None,
    no_floors: str = "",
    quality: QualitySummary | None = None,
) -> ServingRepeat:
    known = {"window_wall_s": 1.0, "peak_rss_bytes": 1, "server_start_s": 3.0, "held": held or ReportedBytes()}
    summary = ServingSummary(rank=0, **known, floors=floors or [], no_floors=no_floors, quality=quality)
    return ServingRepeat((summary,), (), tuple((sample,) for sample in samples), probes=tuple(probes))


def floor(point: int = 0, **changed: float) -> ClientOverhead:
    known = {
        "requests": 10,
        "requests_per_s": 1000.0,
        "ttft_p50_s": 0.001,
        "ttft_p99_s": 0.002,
        "end_to_end_p50_s": 0.002,
    }
    return ClientOverhead(**{"point": point, **known, **changed})


def served_row(
    folder: Path,
    plan: ServingPlan,
    *samples: RequestSample,
    probes: Sequence[LoadPoint] = (),
    floors: list[ClientOverhead] | None = None,
    quality: QualitySummary | None = None,
) -> Row:
    """A successful run in a folder, with its samples and probes there."""
    run = RunFolder(folder)
    (folder / "repeat.0").mkdir(parents=True)
    lines = "".join(sample.model_dump_json() + "\n" for sample in samples)
    (folder / "repeat.0" / "samples.0.jsonl").write_text(lines)
    if probes:
        probes_path(folder / "repeat.0").write_text("".join(each.model_dump_json() + "\n" for each in probes))
    made = repeat(*(sample for sample in samples if not sample.warmup), floors=floors, probes=probes, quality=quality)
    (folder / "repeat.0" / "rank.0.json").write_text(made.ranks[0].model_dump_json())
    result = RunResult(
        id=plan.id,
        stack="0",
        status=RunStatus.SUCCESS,
        task="serve",
        engine=plan.config.engine.name,
        hardware="cpu",
        sweep="main",
        processes=1,
        devices=1,
        command="",
        points=results(plan, [made]),
        what_ran={"answers": quality.words} if quality else {},
    )
    return Row(run, plan, RunStatus.SUCCESS, "", result)
