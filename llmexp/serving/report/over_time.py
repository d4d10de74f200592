"""The pictures of a run over its time, one for each repeat."""

from __future__ import annotations

from pathlib import Path

from llmexp.record.samples import read_samples
from llmexp.report.row import Row
from llmexp.serving.plan.serving_plan import ServingPlan
from llmexp.serving.points import read_begun
from llmexp.serving.record.requests import RequestSample
from llmexp.serving.record.server_samples import read_server_samples, server_samples_path
from llmexp.serving.report.timeline import LoadSpan, draw_timeline


def draw_times(row: Row, title: str, figures: Path) -> None:
    """Draw requests in flight and what the server told, repeat by repeat, as far as there are samples."""
    assert isinstance(row.plan, ServingPlan)
    for repeat in row.folder.repeats():
        try:
            requests = read_samples(repeat / "samples.0.jsonl", RequestSample)
            server = read_server_samples(server_samples_path(repeat))
        except (OSError, ValueError):
            continue
        points = [*row.plan.points, *read_begun(repeat)]
        spans = [span for point in points if (span := _span(str(point), point.number, requests))]
        draw_timeline(
            f"{title}, {repeat.name.replace('.', ' ')}", requests, server, spans, figures / f"{repeat.name}.png"
        )


def _span(name: str, point: int, requests: list[RequestSample]) -> LoadSpan | None:
    own = [request for request in requests if request.point == point and not request.warmup]
    if not own:
        return None
    return LoadSpan(name, min(request.scheduled_s for request in own), max(request.end_s for request in own))
